// Package metrics tells Prometheus what the controller does (as it happens)
// and how the installation stands (read at each scrape, from tables that are
// kept for it: no scrape counts live orders).
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Dispatch observes claims and reports; it implements dispatch.Observer.
type Dispatch struct {
	claims, reports   prometheus.Histogram
	claimed, reported prometheus.Counter
	waits             *prometheus.HistogramVec
}

// NewDispatch makes the observer and registers what it counts.
func NewDispatch(r prometheus.Registerer) *Dispatch {
	buckets := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
	d := &Dispatch{
		claims: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "siding_claim_seconds", Help: "Duration of claim transactions.", Buckets: buckets}),
		reports: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "siding_report_seconds", Help: "Duration of report transactions.", Buckets: buckets}),
		claimed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "siding_orders_claimed_total", Help: "Attempts that this replica gave to agents."}),
		reported: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "siding_reports_total", Help: "Reports of attempts that this replica wrote, refused ones included."}),
	}
	d.waits = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "siding_ready_wait_seconds", Help: "How long orders were ready before they first started.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600},
	}, []string{"line", "queue"})
	r.MustRegister(d.waits, d.claims, d.reports, d.claimed, d.reported)
	return d
}

// Claimed is called after each claim transaction.
func (d *Dispatch) Claimed(orders int, took time.Duration) {
	d.claims.Observe(took.Seconds())
	d.claimed.Add(float64(orders))
}

// Waited is called for each order that starts for the first time.
func (d *Dispatch) Waited(line, queue string, wait time.Duration) {
	if queue == "" {
		queue = "-"
	}
	d.waits.WithLabelValues(line, queue).Observe(wait.Seconds())
}

// Reported is called after each report transaction.
func (d *Dispatch) Reported(reports int, took time.Duration) {
	d.reports.Observe(took.Seconds())
	d.reported.Add(float64(reports))
}
