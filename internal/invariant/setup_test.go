package invariant_test

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/siding-dev/siding/internal/attachment"
	"github.com/siding-dev/siding/internal/catalog"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/definition"
	"github.com/siding-dev/siding/internal/dispatch"
	"github.com/siding-dev/siding/internal/invariant"
	"github.com/siding-dev/siding/internal/keeper"
	"github.com/siding-dev/siding/internal/order"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

var (
	person = order.Person{Name: "test"}
	quiet  = slog.New(slog.NewTextHandler(io.Discard, nil))
)

// anyGap is a pause of sweepers that loses nobody.
const anyGap = 100 * 365 * 24 * time.Hour

// replica is what one controller has.
type replica struct {
	db          *db.DB
	catalog     *catalog.Catalog
	orders      *order.Orders
	attachments *attachment.Attachments
	dispatch    *dispatch.Dispatch
	keeper      *keeper.Keeper
}

func newReplica(d *db.DB, gap time.Duration) *replica {
	x := dispatch.New(d, dispatch.Config{Logger: quiet})
	return &replica{
		db: d, catalog: catalog.New(d, x), orders: order.New(d, x), attachments: attachment.New(d, x), dispatch: x,
		keeper: keeper.New(d, x, keeper.Config{MaxTickGap: gap, Logger: quiet}),
	}
}

// fataler is *testing.T or *rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func (r *replica) apply(t fataler, ctx context.Context, text string) {
	t.Helper()
	docs, err := definition.Parse("test.yaml", []byte(text))
	if err == nil {
		_, err = r.catalog.Apply(ctx, docs, person.Name)
	}
	if err != nil {
		t.Fatalf("apply: %v\n%s", err, text)
	}
}

func (r *replica) exec(t fataler, ctx context.Context, statement string, args ...any) {
	t.Helper()
	if _, err := r.db.Pool.Exec(ctx, r.db.SQL(statement), args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func value[T any](t fataler, ctx context.Context, r *replica, statement string, args ...any) T {
	t.Helper()
	var v T
	if err := r.db.Pool.QueryRow(ctx, r.db.SQL(statement), args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return v
}

// sound fails the test if a rule is broken.
func sound(t fataler, ctx context.Context, r *replica) {
	t.Helper()
	found, err := invariant.Check(ctx, r.db)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if len(found) > 0 {
		t.Fatalf("broken:\n%s", invariant.Describe(found))
	}
}
