package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

type attachments struct{ Attachments []Attachment }

// Attachments lists the attachments of an order.
func (c *Client) Attachments(ctx context.Context, order string) ([]Attachment, error) {
	var body attachments
	err := c.json(ctx, get(nil, "orders", order, "attachments"), &body)
	return body.Attachments, err
}

// Expect adds an expected attachment to an order that has not started; its
// Content isn't sent. It returns all attachments of the order.
func (c *Client) Expect(ctx context.Context, order string, expected NewAttachment, why string) ([]Attachment, error) {
	what, err := send(http.MethodPost, struct {
		reason
		Name   string `json:"name"`
		Size   *int64 `json:"size,omitempty"`
		SHA256 string `json:"sha256,omitempty"`
	}{reason{why}, expected.Name, expected.Size, expected.SHA256}, "orders", order, "attachments")
	if err != nil {
		return nil, err
	}
	var body attachments
	err = c.json(ctx, what, &body)
	return body.Attachments, err
}

// Upload sends the bytes of an attachment, all or nothing. Length is their
// number, -1 if it isn't known. If body is an io.Seeker, it is sent again from
// where it stands when a replica fails; when the first one had it in fact, the
// answer can be attachment_complete.
//
// When they aren't what was announced, the *Problem has the code
// attachment_check_failed, and the order is in attention.
func (c *Client) Upload(ctx context.Context, order, name string, body io.Reader, length int64) (Attachment, error) {
	what := call{method: http.MethodPut, path: join("orders", order, "attachments", name), length: length}
	what.set("Content-Type", "application/octet-stream")
	// However long it takes: a connection that doesn't move is noticed by the
	// controller.
	what.wait = maxUpload
	what.body = func() (io.Reader, error) { return body, nil }
	if seeker, ok := body.(io.Seeker); ok {
		start, err := seeker.Seek(0, io.SeekCurrent)
		if err != nil {
			return Attachment{}, fmt.Errorf("upload %s: %w", name, err)
		}
		what.repeat = true
		what.body = func() (io.Reader, error) {
			_, err := seeker.Seek(start, io.SeekStart)
			return body, err
		}
	}
	var info Attachment
	return info, c.json(ctx, what, &info)
}

// maxUpload bounds one upload.
const maxUpload = 24 * time.Hour

// CompleteAttachment marks an attachment complete that states neither size nor
// hash and has no bytes.
func (c *Client) CompleteAttachment(ctx context.Context, order, name string) ([]Attachment, error) {
	what := call{method: http.MethodPost, path: join("orders", order, "attachments", name, "complete"), repeat: true}
	var body attachments
	err := c.json(ctx, what, &body)
	return body.Attachments, err
}

// Discard throws the bytes of an attachment away. It needs a reason.
func (c *Client) Discard(ctx context.Context, order, name, why string) ([]Attachment, error) {
	what := call{method: http.MethodDelete, path: join("orders", order, "attachments", name), query: url.Values{"reason": {why}}}
	var body attachments
	err := c.json(ctx, what, &body)
	return body.Attachments, err
}

// Download opens the bytes of a complete attachment. A connection that breaks is
// taken up again where it broke, at another replica if need be; ctx bounds the
// whole. Size is their number.
func (c *Client) Download(ctx context.Context, order, name string) (body io.ReadCloser, size int64, err error) {
	what := get(nil, "orders", order, "attachments", name)
	answer, err := c.do(ctx, what) //nolint:bodyclose // the download closes it
	if err != nil {
		return nil, 0, err
	}
	d := &download{ctx: ctx, client: c, what: what, body: answer.Body, size: answer.ContentLength, etag: answer.Header.Get("ETag")}
	return d, answer.ContentLength, nil
}

// maxResumes is how often in a row a download is taken up without a byte coming.
const maxResumes = 5

// download is an answer that is continued when it breaks.
type download struct {
	ctx    context.Context
	client *Client
	what   call
	body   io.ReadCloser // nil: broken
	offset int64
	size   int64
	etag   string
	tries  int
	closed bool
}

// Read implements io.Reader.
func (d *download) Read(p []byte) (int, error) {
	for {
		if d.closed {
			return 0, errors.New("read from a closed download")
		}
		if d.body == nil {
			if err := d.resume(); err != nil {
				return 0, err
			}
		}
		n, err := d.body.Read(p)
		d.offset += int64(n)
		if n > 0 {
			d.tries = 0
		}
		if err == nil || errors.Is(err, io.EOF) && (d.size < 0 || d.offset >= d.size) {
			return n, err
		}
		// Without a validator nobody knows whether the rest belongs to it.
		if d.tries++; d.tries > maxResumes || d.ctx.Err() != nil || d.etag == "" || d.size < 0 {
			return n, err
		}
		d.body.Close() // it is broken
		d.body = nil
		if n > 0 {
			return n, nil
		}
	}
}

// resume asks for the rest.
func (d *download) resume() error {
	if d.tries > 1 && !pause(d.ctx, roundPause<<(d.tries-2)) {
		return d.ctx.Err()
	}
	what := d.what
	what.header = map[string]string{"Range": fmt.Sprintf("bytes=%d-", d.offset), "If-Match": d.etag}
	answer, err := d.client.do(d.ctx, what)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusPartialContent || answer.Header.Get("ETag") != d.etag {
		answer.Body.Close() // it is of no use
		return fmt.Errorf("resume at %d: the attachment has changed", d.offset)
	}
	d.body = answer.Body
	return nil
}

// Close implements io.Closer.
func (d *download) Close() error {
	d.closed = true
	if d.body == nil {
		return nil
	}
	return d.body.Close()
}
