// Package main creates invoices and reminds customers who have not paid.
package main

import (
	"net/http"
	"os"
)

func env(name, fallback string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return fallback
}

var (
	currency  = env("BILLING_CURRENCY", "EUR")
	graceDays = env("BILLING_GRACE_DAYS", "14")
)

func main() {
	http.HandleFunc("/invoices", listInvoices)
	http.HandleFunc("/invoices/new", newInvoice)
	http.HandleFunc("/payments", recordPayment)
	registerReports()
	http.ListenAndServe(":7070", nil)
}
