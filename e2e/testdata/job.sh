# The job of the real run. It takes part in the test: what must not be goes to
# the file violations, and each start and end to the log of the key.
note() { echo "$1 $SIDING_ORDER_ID $SIDING_JOB $SIDING_ATTEMPT" >>"$E2E_DIR/keys/$SIDING_KEY"; }
violation() {
	echo "order $SIDING_ORDER_ID: $1" >>"$E2E_DIR/violations"
	exit 9
}

# No two jobs of a key at the same time, so no order twice either. The lock goes
# with the last process of the job.
exec 9>>"$E2E_DIR/locks/$SIDING_KEY"
flock -n 9 || violation "another job of key $SIDING_KEY is running"
note start

case $SIDING_JOB/$SIDING_ARG_MODE in
check/flaky) # fails once
	[ "$SIDING_ATTEMPT" -gt 1 ] || exit 1
	;;
check/doomed) # fails until somebody repairs it
	[ -e "$E2E_DIR/repaired-$SIDING_ORDER_ID" ] || exit 1
	;;
check/stuck) # goes on until it is killed, with a child that has left the group
	if [ "$SIDING_ATTEMPT" = 1 ]; then
		setsid sh -c 'trap "" HUP; echo $$ >"$E2E_DIR/escaped"; exec sleep 600' 9>&- &
		echo $$ >"$E2E_DIR/stuck"
		sleep 600
	fi
	;;
check/slow) # goes on until it is told
	echo $$ >"$E2E_DIR/slow"
	while [ ! -e "$E2E_DIR/go" ]; do sleep 0.05; done
	;;
esac

if [ -n "$SIDING_ARG_SHA256" ]; then
	sum=$(sha256sum <"$SIDING_ATTACHMENT_SCAN")
	[ "${sum%% *}" = "$SIDING_ARG_SHA256" ] || violation "the attachment has the wrong content"
fi
sleep 0.02
note end
