package e2e_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/siding-dev/siding/client"
)

const (
	keys         = 20
	ordersPerKey = 15
)

// fate is what happens to the attachment of an order.
type fate int

const (
	none           fate = iota // it has none
	early                      // uploaded at once
	interrupted                // uploaded while the controller that takes it is killed
	late                       // uploaded when others have passed
	wrongMended                // other bytes first, then the right ones, resumed
	wrongCancelled             // other bytes, cancelled
	wrongLeft                  // other bytes, left in attention
	neverMended                // comes when the limit is over, resumed
	neverCancelled             // never comes, cancelled
	neverReleased              // never comes, its successor is released, then cancelled
	neverLeft                  // never comes, left in attention
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// planned is an order of the real run with what is to become of it.
type planned struct {
	number int // in the order of adding
	key    int
	rank   int // within its key
	mode   string
	fate   fate
	size   int // of the attachment, in bytes

	id     int64
	state  string // in the end
	reason string // of the attention it is left in
}

func (p *planned) ref() string     { return fmt.Sprintf("order-%03d", p.number) }
func (p *planned) keyName() string { return fmt.Sprintf("customer-%02d", p.key) }

// workflow alternates, so that the successor of most orders runs on the other
// agent.
func (p *planned) workflow() string {
	if (p.key+p.rank)%2 == 0 {
		return "intake"
	}
	return "billing"
}

// content is the attachment: random, but the same each time.
func (p *planned) content() []byte {
	bytes := make([]byte, p.size)
	_, _ = rand.NewChaCha8([32]byte{byte(p.number), byte(p.number >> 8)}).Read(bytes) // never fails
	return bytes
}

// wrong is other content, of another size for some.
func (p *planned) wrong() []byte {
	bytes := p.content()
	if p.number%2 == 0 {
		return bytes[:len(bytes)-1]
	}
	bytes[len(bytes)-1] ^= 1
	return bytes
}

// order is what is added. Hashing makes its content.
func (p *planned) order(t *testing.T) client.NewOrder {
	t.Helper()
	o := client.NewOrder{Workflow: p.workflow(), Ref: p.ref(), Key: p.keyName()}
	if p.rank%4 == 1 {
		o.Queue = "express"
	}
	args := map[string]string{"mode": p.mode}
	if p.fate != none {
		sum, size := fmt.Sprintf("%x", sha256.Sum256(p.content())), int64(p.size)
		args["sha256"] = sum
		o.Attachments = []client.NewAttachment{{Name: "scan", Size: &size, SHA256: sum}}
	}
	switch p.fate {
	case neverMended, neverCancelled, neverReleased, neverLeft:
		o.WaitLimit = "3s"
	}
	var err error
	if o.Args, err = json.Marshal(args); err != nil {
		t.Fatal(err)
	}
	return o
}

// plan is the real run: 300 orders, of which 100 expect an attachment.
func plan() []*planned {
	// Sizes of the big ones, by key and rank; the others have up to 512 KiB.
	big := map[[2]int]int{
		{18, 2}: 50 * mib, {19, 5}: 20 * mib, {0, 5}: 12 * mib, {1, 8}: 10 * mib, {19, 8}: 10 * mib,
		{17, 2}: 3 * mib, {17, 5}: 2 * mib, {17, 8}: mib,
	}
	var all []*planned
	attachments := 0
	for rank := range ordersPerKey {
		for key := range keys {
			p := &planned{number: len(all), key: key, rank: rank, fate: fateOf(key, rank), mode: modeOf(key, rank), state: "finished"}
			if p.fate != none {
				p.size = kib << (attachments % 10)
				attachments++
				if size, ok := big[[2]int{key, rank}]; ok {
					p.size = size
				}
			}
			switch p.fate {
			case wrongCancelled, neverCancelled, neverReleased:
				p.state = "cancelled"
			case wrongLeft:
				p.state, p.reason = "attention", "attachment_check_failed"
			case neverLeft:
				p.state, p.reason = "attention", "attachment_wait_limit"
			}
			if p.mode == "doomed" && p.key == 4 {
				p.state = "cancelled"
			}
			all = append(all, p)
		}
	}
	return all
}

// fateOf: every third order has an attachment. What is left in attention is the
// last of its key, since it holds those behind it.
func fateOf(key, rank int) fate {
	switch {
	case rank%3 != 2:
		return none
	case rank == 2 && key == 18:
		return interrupted
	case rank == 5 && key < 12:
		return late
	case rank == 8 && key < 5:
		return wrongMended
	case rank == 8 && key < 8:
		return wrongCancelled
	case rank == 11 && key >= 10 && key < 13:
		return neverCancelled
	case rank == 11 && key >= 13 && key < 15:
		return neverMended
	case rank == 11 && key == 15:
		return neverReleased
	case rank == 14 && key < 3:
		return wrongLeft
	case rank == 14 && key < 6:
		return neverLeft
	}
	return early
}

// modeOf is what the job does; see testdata/job.sh.
func modeOf(key, rank int) string {
	switch {
	case rank == 0 && key == 0:
		return "stuck"
	case rank == 0 && key == 1:
		return "slow"
	case rank == 3 && key >= 2 && key < 5:
		return "doomed"
	case rank == 4 && key >= 5 && key < 15:
		return "flaky"
	}
	return "plain"
}
