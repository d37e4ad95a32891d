package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

const (
	// maxChunkBytes is the size of one piece of output.
	maxChunkBytes = 32 << 10
	// maxBatchBytes bounds the output in one call.
	maxBatchBytes = 512 << 10
	// outputDelay is how long output is collected before it is sent.
	outputDelay = 250 * time.Millisecond
	// outputFlushWait is how long an attempt that has ended waits for its last
	// output to be sent. The report comes after it, since the controller may
	// refuse output of a lease that was reported.
	outputFlushWait = 5 * time.Second
	// maxOutputTries is how often a batch is sent before it is given up, so
	// that one that the controller can't digest doesn't hold up all others.
	maxOutputTries = 6
)

// shipper sends the output of all attempts of a session, in batches.
type shipper struct {
	s *session

	mu       sync.Mutex
	queue    []*stream
	queued   map[*stream]bool
	buffered int64

	wake   chan struct{} // something waits
	urgent chan struct{} // don't collect any longer
}

func newShipper(s *session) *shipper {
	return &shipper{s: s, queued: map[*stream]bool{}, wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1)}
}

func (sh *shipper) newStream(ref protocol.LeaseRef, name string) *stream {
	return &stream{shipper: sh, ref: ref, name: name}
}

// reserve takes room in the buffer if there is enough.
func (sh *shipper) reserve(n int) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.buffered+int64(n) > sh.s.cfg.OutputBufferBytes {
		return false
	}
	sh.buffered += int64(n)
	return true
}

// force takes room for a note, which is never dropped.
func (sh *shipper) force(n int) { sh.release(-n) }

func (sh *shipper) release(n int) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.buffered -= int64(n)
}

// enqueue makes the loop look at a stream.
func (sh *shipper) enqueue(st *stream, urgent bool) {
	sh.mu.Lock()
	if !sh.queued[st] {
		sh.queued[st] = true
		sh.queue = append(sh.queue, st)
	}
	sh.mu.Unlock()
	notify(sh.wake)
	if urgent {
		notify(sh.urgent)
	}
}

func notify(signal chan<- struct{}) {
	select {
	case signal <- struct{}{}:
	default: // it is already up
	}
}

func (sh *shipper) loop() {
	for {
		select {
		case <-sh.wake:
		case <-sh.s.ctx.Done():
			return
		}
		select {
		case <-sh.urgent:
		case <-time.After(outputDelay):
		case <-sh.s.ctx.Done():
			return
		}
		for {
			streams, chunks := sh.collect()
			if len(streams) == 0 {
				break
			}
			sh.send(chunks)
			for _, st := range streams {
				st.sent()
			}
		}
	}
}

// collect takes pieces of the streams that wait, in turn, up to the size of a
// batch.
func (sh *shipper) collect() ([]*stream, []protocol.OutputChunk) {
	var streams []*stream
	var chunks []protocol.OutputChunk
	for size := 0; size < maxBatchBytes; {
		sh.mu.Lock()
		if len(sh.queue) == 0 {
			sh.mu.Unlock()
			break
		}
		st := sh.queue[0]
		sh.queue = sh.queue[1:]
		delete(sh.queued, st)
		sh.mu.Unlock()

		streams = append(streams, st)
		chunk, more := st.take()
		if chunk != nil {
			chunks = append(chunks, *chunk)
			size += len(chunk.Data)
		}
		if more {
			sh.enqueue(st, false)
		}
	}
	return streams, chunks
}

// send sends a batch and releases its room in the buffer, also when it gives up.
func (sh *shipper) send(chunks []protocol.OutputChunk) {
	if len(chunks) == 0 {
		return
	}
	size := 0
	for _, chunk := range chunks {
		size += len(chunk.Data)
	}
	defer sh.release(size)

	s := sh.s
	retry := newBackoff()
	for {
		ctx, cancel := context.WithTimeout(s.ctx, s.cfg.CallTimeout)
		err := s.controller.Output(ctx, s.info.ID, chunks)
		cancel()
		switch {
		case err == nil || s.ctx.Err() != nil:
			return
		case errors.Is(err, protocol.ErrSessionGone):
			s.gone()
			return
		case errors.Is(err, protocol.ErrRefused) || retry.failures+1 >= maxOutputTries:
			s.log.Error("output given up", "bytes", size, "error", err)
			return
		}
		pause := retry.next()
		s.log.Warn("output failed", "bytes", size, "error", err, "again_in", pause)
		if !sleep(s.ctx, pause) {
			return
		}
	}
}
