package cli

import "io"

// Streams are where a command reads and writes.
type Streams struct {
	In  io.Reader
	Out io.Writer
	// Err gets what isn't the answer: errors, logs, progress.
	Err io.Writer
}
