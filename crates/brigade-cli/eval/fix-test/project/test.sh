#!/bin/sh
# Compares the output of duration.sh with what is expected.
failed=0
expect() {
    found=$(sh duration.sh "$1")
    if [ "$found" != "$2" ]; then
        echo "duration.sh $1: expected $2, found $found"
        failed=1
    fi
}
expect 0 0s
expect 59 59s
expect 60 1m00s
expect 754 12m34s
expect 3600 1h00m00s
expect 3725 1h02m05s
expect 86399 23h59m59s
[ "$failed" -eq 0 ] && echo "all passed"
exit "$failed"
