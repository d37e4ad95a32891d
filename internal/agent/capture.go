package agent

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// escapedOutputWait is how long a job's output is read on after all processes
// of its group have ended. Only a process that left the group can hold it open.
const escapedOutputWait = 2 * time.Second

// Stream names of the protocol.
const (
	streamStdout = "stdout"
	streamStderr = "stderr"
)

// capture reads one output stream of a job through a pipe of its own.
type capture struct {
	stream *stream
	read   *os.File
	write  *os.File
	done   chan struct{} // closed when reading has ended
}

func newCapture(stream *stream) (*capture, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("output pipe: %w", err)
	}
	return &capture{stream: stream, read: read, write: write, done: make(chan struct{})}, nil
}

// start reads, after the process has got its end of the pipe. It always keeps
// up with the job: what the stream can't take is dropped there.
func (c *capture) start() {
	c.write.Close()
	go func() {
		defer close(c.done)
		defer c.read.Close()
		buffer := make([]byte, maxChunkBytes)
		for {
			n, err := c.read.Read(buffer)
			c.stream.add(buffer[:n])
			if err != nil { // the end of the stream, or the deadline of finish
				return
			}
		}
	}()
}

// discard closes the pipe of a process that didn't start.
func (c *capture) discard() {
	c.write.Close()
	c.read.Close()
}

// finish waits for the end of the stream, but not for a process that escaped
// and holds it open.
func (c *capture) finish(deadline time.Time) {
	// Pipes take deadlines on all systems; if not, the wait below would only last longer.
	_ = c.read.SetReadDeadline(deadline)
	<-c.done
}

// stream is the kept output of one stream of an attempt, on its way to the
// controller. Offsets count what is sent, notes included, without gaps.
type stream struct {
	shipper *shipper
	ref     protocol.LeaseRef
	name    string

	mu        sync.Mutex
	pending   []byte
	offset    int64 // of pending
	kept      int64 // bytes of the job, counted against the cap
	dropped   int64 // bytes the buffer had no room for, since the last note
	truncated bool
	closed    bool // nothing comes any more
	shipping  bool // taken by the shipper
	shipped   chan struct{}
}

// bufferShare is the part of the buffer that one stream may fill, so that a
// loud job leaves room for others.
const bufferShare = 4

// add keeps a piece of output as far as cap and buffer allow.
func (st *stream) add(p []byte) {
	if len(p) == 0 {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.truncated || st.closed {
		return
	}
	outputCap, room := st.shipper.s.cfg.OutputCapBytes, st.shipper.s.cfg.OutputBufferBytes/bufferShare
	over := st.kept+int64(len(p)) > outputCap
	if over {
		p = p[:outputCap-st.kept]
	}
	st.kept += int64(len(p))
	if int64(len(st.pending)+len(p)) > room || !st.shipper.reserve(len(p)) {
		st.dropped += int64(len(p))
	} else {
		st.noteDropped()
		st.pending = append(st.pending, p...)
	}
	if over {
		st.truncated = true
		st.noteDropped()
		st.note("output truncated after %d bytes", outputCap)
	}
	st.shipper.enqueue(st, len(st.pending) >= maxChunkBytes)
}

// noteDropped says in the output how much of it was dropped.
func (st *stream) noteDropped() {
	if st.dropped > 0 {
		st.note("%d bytes of output dropped: the controller didn't take them in time", st.dropped)
		st.dropped = 0
	}
}

func (st *stream) note(format string, args ...any) {
	text := fmt.Sprintf("\n[siding: "+format+"]\n", args...)
	st.shipper.force(len(text))
	st.pending = append(st.pending, text...)
}

// finish waits until everything is sent, at most until ctx ends; the rest is
// then given up.
func (st *stream) finish(ctx context.Context) {
	st.mu.Lock()
	st.closed = true
	st.noteDropped()
	if len(st.pending) == 0 && !st.shipping {
		st.mu.Unlock()
		return
	}
	st.shipped = make(chan struct{})
	shipped := st.shipped
	st.mu.Unlock()
	st.shipper.enqueue(st, true)
	select {
	case <-shipped:
	case <-ctx.Done():
		st.abandon()
	}
}

// abandon gives up what waits.
func (st *stream) abandon() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closed = true
	st.shipper.release(len(st.pending))
	st.pending = nil
}

// take removes the next piece from what waits, nil if there is none, and says
// whether more waits.
func (st *stream) take() (chunk *protocol.OutputChunk, more bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	n := min(len(st.pending), maxChunkBytes)
	if n == 0 {
		return nil, false
	}
	chunk = &protocol.OutputChunk{LeaseRef: st.ref, Stream: st.name, Offset: st.offset, Data: st.pending[:n:n]}
	st.pending = st.pending[n:]
	st.offset += int64(n)
	st.shipping = true
	return chunk, len(st.pending) > 0
}

// sent is called when what was taken was sent, or given up.
func (st *stream) sent() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.shipping = false
	if len(st.pending) > 0 {
		return
	}
	st.pending = nil
	if st.shipped != nil {
		close(st.shipped)
		st.shipped = nil
	}
}
