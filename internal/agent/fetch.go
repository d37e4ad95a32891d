package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// maxFetchTries is how often an attachment is asked for without getting a byte.
const maxFetchTries = 8

// errShort is a clean end before all promised bytes were there. A broken
// connection shows as another error.
var errShort = errors.New("it ended early")

// fetchAttachments brings the order's attachments into the working directory
// and checks each. One that isn't what was promised is a rejection.
func (a *attempt) fetchAttachments(dir workdir) error {
	seen := map[string]bool{}
	for _, attachment := range a.lease.Attachments {
		if !validFileName(attachment.Name) || seen[attachment.Name] {
			return rejected("attachment %q: the name can't be a file's name, or stands twice", attachment.Name)
		}
		seen[attachment.Name] = true
		if err := a.fetchAttachment(dir, attachment); err != nil {
			return err
		}
	}
	return nil
}

func (a *attempt) fetchAttachment(dir workdir, attachment protocol.Attachment) error {
	file, err := os.OpenFile(dir.attachment(attachment.Name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("attachment %s: %w", attachment.Name, err)
	}
	d := download{a: a, attachment: attachment, file: file, hash: sha256.New()}
	err = d.run()
	if closeErr := file.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("attachment %s: %w", attachment.Name, closeErr)
	}
	return err
}

// download brings one attachment into a file, going on where it broke off.
type download struct {
	a          *attempt
	attachment protocol.Attachment
	file       *os.File
	hash       hash.Hash
	size       int64
	fileErr    error
}

func (d *download) run() error {
	retry := newBackoff()
	for {
		before := d.size
		err := d.pull()
		switch {
		case err == nil:
			return d.check()
		case d.a.ctx.Err() != nil:
			return context.Cause(d.a.ctx)
		case d.fileErr != nil:
			return fmt.Errorf("attachment %s: %w", d.attachment.Name, d.fileErr)
		case errors.Is(err, protocol.ErrRefused):
			return rejected("attachment %s: %v", d.attachment.Name, err)
		case errors.Is(err, protocol.ErrSessionGone):
			d.a.s.gone()
			return err
		case errors.Is(err, errShort) && d.size == before:
			return rejected("attachment %s: only %d of the expected %d bytes", d.attachment.Name, d.size, d.attachment.Size)
		}
		if d.size > before {
			retry.reset()
		}
		if retry.failures+1 >= maxFetchTries {
			return fmt.Errorf("attachment %s: got %d of %d bytes: %w", d.attachment.Name, d.size, d.attachment.Size, err)
		}
		retry.pause(d.a.ctx)
	}
}

// pull reads from where the file ends. It is nil when the attachment has ended
// or turned out to be bigger than promised.
func (d *download) pull() error {
	source, err := d.a.s.controller.Attachment(d.a.ctx, d.a.s.info.ID, d.a.lease.LeaseRef, d.attachment.Name, d.size)
	if err != nil {
		return err
	}
	defer source.Close()
	// A read that hangs must end with the attempt.
	defer context.AfterFunc(d.a.ctx, func() { source.Close() })()
	_, err = io.Copy(d, io.LimitReader(source, d.attachment.Size-d.size+1))
	if err == nil && d.size < d.attachment.Size {
		return errShort
	}
	return err
}

// Write stores and hashes a piece.
func (d *download) Write(p []byte) (int, error) {
	n, err := d.file.Write(p)
	d.hash.Write(p[:n])
	d.size += int64(n)
	d.fileErr = err
	return n, err
}

func (d *download) check() error {
	if d.size > d.attachment.Size {
		return rejected("attachment %s: more than the expected %d bytes", d.attachment.Name, d.attachment.Size)
	}
	got := hex.EncodeToString(d.hash.Sum(nil))
	if want := d.attachment.SHA256; want != "" && !strings.EqualFold(got, want) {
		return rejected("attachment %s: SHA-256 is %s, expected %s", d.attachment.Name, got, want)
	}
	return nil
}
