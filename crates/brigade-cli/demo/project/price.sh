#!/bin/sh
# price.sh QUANTITY UNIT_PRICE: the total in cents.
quantity=$1
unit_price=$2
total=$((quantity * unit_price))

# Ten or more get a ten percent discount.
if [ "$quantity" -gt 10 ]; then
    total=$((total * 90 / 100))
fi

# TODO: reject a quantity that is not a number
echo "$total"
