#!/bin/sh
# Runs all tests and prints how many failed.
cd "$(dirname "$0")" || exit 2
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

check 1 250 250
check 9 100 900
check 10 100 900
check 11 100 990

echo "$failed failed"
[ "$failed" -eq 0 ]
