package metrics

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/siding-dev/siding/internal/db"
)

// scrapeTimeout bounds the reads of one scrape.
const scrapeTimeout = 5 * time.Second

// State reads how the installation stands at each scrape.
type State struct {
	db   *db.DB
	log  *slog.Logger
	sets []set
}

// set is a group of metrics that one statement reads: label values, then the value.
type set struct {
	desc      *prometheus.Desc
	labels    int
	statement string
}

// NewState makes the collector; register it.
func NewState(d *db.DB, log *slog.Logger) *State {
	gauge := func(name, help, statement string, labels ...string) set {
		return set{prometheus.NewDesc(name, help, labels, nil), len(labels), statement}
	}
	return &State{db: d, log: log, sets: []set{
		gauge("siding_orders", "Live orders in the lists of each queue (- for none), as last counted.", `
			SELECT coalesce(q.name, '-'), c.list, c.orders::float8
			FROM siding.list_counts c LEFT JOIN siding.queues q ON q.queue_id = c.queue_id`, "queue", "list"),
		gauge("siding_orders_counted_age_seconds", "Age of the oldest of these counts.", `
			SELECT coalesce(extract(epoch FROM siding.clock() - min(counted_at)), 0)::float8 FROM siding.list_counts`),
		gauge("siding_line_strict", "1 while nothing new passes the first blocked order of the line.", `
			SELECT r.name, coalesce(l.reason, ''), (l.mode = 'strict')::int::float8
			FROM siding.lines l JOIN siding.resources r ON r.resource_id = l.line_id
			WHERE r.kind = 'agent' AND r.removed_at IS NULL`, "agent", "reason"),
		gauge("siding_sessions", "Open sessions of each agent.", `
			SELECT r.name, count(s.session_id)::float8
			FROM siding.resources r LEFT JOIN siding.sessions s ON s.agent_id = r.resource_id AND s.ended_at IS NULL
			WHERE r.kind = 'agent' AND r.agent_type <> 'cluster' AND r.removed_at IS NULL GROUP BY r.name`, "agent"),
		gauge("siding_paused", "1 for what people paused.", `
			SELECT p.kind, siding.pause_subject(p.kind, p.subject_id), 1::float8 FROM siding.pauses p`, "kind", "name"),
		gauge("siding_snapshot_held_seconds", "Age of the oldest transaction of this database that holds vacuum back.", `
			SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float8
			FROM pg_stat_activity WHERE datname = current_database() AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid()`),
	}}
}

// Describe implements prometheus.Collector.
func (s *State) Describe(descs chan<- *prometheus.Desc) {
	for _, set := range s.sets {
		descs <- set.desc
	}
}

// Collect implements prometheus.Collector. What can't be read is left out.
func (s *State) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	for _, set := range s.sets {
		if err := s.collect(ctx, set, metrics); err != nil {
			s.log.Warn("metric can't be read", "metric", set.desc.String(), "error", err)
		}
	}
}

func (s *State) collect(ctx context.Context, set set, metrics chan<- prometheus.Metric) error {
	rows, err := s.db.Pool.Query(ctx, s.db.SQL(set.statement))
	if err != nil {
		return err
	}
	labels := make([]string, set.labels)
	var value float64
	into := make([]any, 0, set.labels+1)
	for i := range labels {
		into = append(into, &labels[i])
	}
	_, err = pgx.ForEachRow(rows, append(into, &value), func() error {
		metrics <- prometheus.MustNewConstMetric(set.desc, prometheus.GaugeValue, value, labels...)
		return nil
	})
	return err
}
