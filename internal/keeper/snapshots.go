package keeper

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// warnHeldSnapshots names the sessions of this database whose transactions hold
// vacuum back: dead rows stay until they end, and every scan has to pass them.
func (k *Keeper) warnHeldSnapshots(ctx context.Context) (bool, error) {
	rows, err := k.db.Pool.Query(ctx, `
		SELECT pid, coalesce(usename, ''), coalesce(application_name, ''), coalesce(state, ''),
		       extract(epoch FROM clock_timestamp() - xact_start)::float8
		FROM pg_stat_activity
		WHERE datname = current_database() AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
		  AND xact_start + $1::interval <= clock_timestamp()
		ORDER BY xact_start LIMIT 10`, k.config.WarnSnapshotAfter)
	if err != nil {
		return false, err
	}
	var pid int
	var user, application, state string
	var age float64
	_, err = pgx.ForEachRow(rows, []any{&pid, &user, &application, &state, &age}, func() error {
		k.config.Logger.Warn("a session holds back vacuum; claims slow down until its transaction ends",
			"pid", pid, "user", user, "application", application, "state", state,
			"age", (time.Duration(age) * time.Second).String())
		return nil
	})
	return false, err
}
