package main

import "net/http"

// registerReports adds the routes that the finance team uses once a month.
func registerReports() {
	http.HandleFunc("/reports/overdue", overdueReport)
	http.HandleFunc("/reports/revenue", revenueReport)
	// http.HandleFunc("/reports/forecast", forecastReport) was removed: nobody used it.
}
