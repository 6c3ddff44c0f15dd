#!/bin/sh
# test.sh [ROUNDS]: runs all tests so many times and prints how many failed.
cd "$(dirname "$0")" || exit 2
rounds=${1:-1}
failed=0

check() {
    actual=$(./price.sh "$1" "$2")
    if [ "$actual" = "$3" ]; then
        echo "ok      $1 x $2 = $3"
    else
        echo "FAILED  $1 x $2: expected $3, got $actual"
        failed=$((failed + 1))
    fi
}

while [ "$rounds" -gt 0 ]; do
    check 1 250 250
    check 9 100 900
    check 10 100 900
    check 11 100 990
    sleep 0.25 # the till prints its receipt
    rounds=$((rounds - 1))
done

echo "$failed failed"
[ "$failed" -eq 0 ]
