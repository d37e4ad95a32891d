package lock_test
import ("testing";"context")
func logDeadlocks(t *testing.T, w *world) {
	var n, g int
	_ = w.db.Pool.QueryRow(context.Background(), `SELECT pg_stat_clear_snapshot()::text is null, 0`)
	if err := w.db.Pool.QueryRow(context.Background(), `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`).Scan(&n); err != nil { t.Error(err) }
	_ = w.db.Pool.QueryRow(context.Background(), w.db.SQL(`SELECT count(*) FROM siding.events WHERE kind='lock_granted'`)).Scan(&g)
	t.Logf("deadlocks %d grants %d", n, g)
}
