package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/siding-dev/siding/internal/attachment"
	"github.com/siding-dev/siding/internal/db"
)

// stall is how long a sender or a reader of bytes may do nothing.
const stall = time.Minute

// octets is the media type of bytes that nobody but their owner understands.
const octets = "application/octet-stream"

func (s *server) uploadRoutes() {
	path := "/orders/{order}/attachments/{name}"
	params := []*huma.Param{
		pathParam("order", "Id of the order, or ref:REFERENCE"), pathParam("name", "Name of the attachment"),
	}
	bytesOf := map[string]*huma.MediaType{octets: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}
	s.stream(operation{
		id: "put-attachment", method: http.MethodPut, path: path, role: "submitter", tag: "Attachments",
		summary: "Send the bytes of an attachment",
		description: "The body is the attachment, all or nothing. When its size or SHA-256 is not what was announced with the order, the answer is " +
			"`attachment_check_failed` and the order turns to attention; sending it again replaces it. No part of a body that breaks off stays.",
		codes: []string{
			"order_not_found", "order_final", "attachment_not_found", "attachment_complete", "attachment_check_failed", "attachment_too_large",
			"invalid_attachment", "size_mismatch", "request_timeout",
		},
	}, func(doc *huma.Operation) {
		info := s.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[attachment.Info](), true, "Info")
		doc.Parameters = params
		doc.RequestBody = &huma.RequestBody{Required: true, Content: bytesOf}
		doc.Responses["200"] = &huma.Response{
			Description: "The attachment is complete", Content: map[string]*huma.MediaType{"application/json": {Schema: info}},
		}
	}, s.putAttachment)
	s.stream(operation{
		id: "get-attachment", method: http.MethodGet, path: path, role: "viewer", tag: "Attachments",
		summary: "Receive the bytes of a complete attachment", description: "Range, If-Range and If-None-Match are understood.",
		codes: []string{
			"order_not_found", "attachment_not_found", "attachment_not_complete", "attachment_has_no_bytes", "attachment_removed", "invalid_attachment",
		},
	}, func(doc *huma.Operation) {
		doc.Parameters = params
		doc.Responses["200"] = &huma.Response{Description: "The bytes", Content: bytesOf}
		doc.Responses["206"] = &huma.Response{Description: "The part that Range asked for", Content: bytesOf}
		doc.Responses["304"] = &huma.Response{Description: "If-None-Match names what it is"}
		doc.Responses["416"] = &huma.Response{Description: "There is no such range"}
	}, s.getAttachment)
}

// attachmentIn finds the attachment that a streamed request names.
func (s *server) attachmentIn(r *http.Request) (int64, string, error) {
	in := AttachmentPath{OrderPath{pathValue(r, "order")}, pathValue(r, "name")}
	id, err := s.attachmentOf(r.Context(), &in)
	return id, in.Name, err
}

// pathValue is a parameter in the path, unescaped: the router matches the
// escaped path if there is one.
func pathValue(r *http.Request, name string) string {
	value := r.PathValue(name)
	if r.URL.RawPath == "" {
		return value
	}
	if plain, err := url.PathUnescape(value); err == nil {
		return plain
	}
	return value
}

func (s *server) putAttachment(w http.ResponseWriter, r *http.Request) error {
	id, name, err := s.attachmentIn(r)
	if err != nil {
		return err
	}
	liftDeadlines(w)
	body := &movingDeadline{body: r.Body, control: http.NewResponseController(w)}
	info, err := s.Attachments.Put(r.Context(), id, name, body, r.ContentLength)
	// What follows doesn't wait for the sender any more.
	liftDeadlines(w)
	if err != nil {
		return uploadError(err, body.err)
	}
	if info.State == attachment.Failed {
		p := newProblem("attachment_check_failed", fmt.Sprintf("attachment %s: %s", name, info.Problem))
		p.Hint = "The order is in attention now. Send the right bytes, then resolve it."
		return p
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(info)
}

// uploadError says whose fault it is that a body wasn't read to its end.
func uploadError(err, reading error) error {
	var timeout interface{ Timeout() bool }
	_, refused := db.AsRefusal(err)
	switch {
	case refused || reading == nil || errors.Is(reading, io.EOF):
		return err
	case errors.As(reading, &timeout) && timeout.Timeout():
		return newProblem("request_timeout", fmt.Sprintf("nothing came for %s", stall))
	}
	p := newProblem("size_mismatch", "the body broke off: "+reading.Error())
	p.Hint = "Nothing of it was kept. Send it again."
	return p
}

// movingDeadline gives a body time as long as bytes come.
type movingDeadline struct {
	body    io.Reader
	control *http.ResponseController
	err     error // the last read's
}

// Read implements io.Reader.
func (m *movingDeadline) Read(p []byte) (int, error) {
	_ = m.control.SetReadDeadline(time.Now().Add(stall)) // a writer without deadlines needs none
	n, err := m.body.Read(p)
	m.err = err
	return n, err
}

func (s *server) getAttachment(w http.ResponseWriter, r *http.Request) error {
	id, name, err := s.attachmentIn(r)
	if err != nil {
		return err
	}
	body, info, err := s.Attachments.Open(r.Context(), id, name, 0)
	if err != nil {
		return err
	}
	source := &seekable{ctx: r.Context(), attachments: s.Attachments, order: id, name: name, size: *info.Size, open: body}
	defer source.Close()
	h := w.Header()
	h.Set("Content-Type", octets)
	h.Set("Content-Disposition", `attachment; filename="`+name+`"`) // names hold no character that needs quoting
	if info.SHA256 != "" {
		h.Set("ETag", `"`+info.SHA256+`"`)
	}
	http.ServeContent(&movingWriter{ResponseWriter: w, control: http.NewResponseController(w)}, r, "", info.ChangedAt, source)
	if source.err != nil {
		// The length was promised; a cut connection says that it isn't kept.
		s.Logger.WarnContext(r.Context(), "attachment was cut off", "request_id", requestIDOf(r.Context()), "order", id, "attachment", name, "error", source.err)
		panic(http.ErrAbortHandler)
	}
	return nil
}

// movingWriter gives a reader time as long as it takes bytes.
type movingWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

// Unwrap lets http.ResponseController through.
func (m *movingWriter) Unwrap() http.ResponseWriter { return m.ResponseWriter }

// Write implements io.Writer.
func (m *movingWriter) Write(p []byte) (int, error) {
	_ = m.control.SetWriteDeadline(time.Now().Add(stall)) // a writer without deadlines needs none
	return m.ResponseWriter.Write(p)
}

// seekable makes an attachment an io.ReadSeeker, which http.ServeContent serves
// ranges of. It opens the bytes where they are read.
type seekable struct {
	ctx         context.Context
	attachments *attachment.Attachments
	order       int64
	name        string
	size        int64
	offset      int64
	open        io.ReadCloser // at offset; nil after a Seek
	err         error         // why reading failed
}

// Seek implements io.Seeker.
func (s *seekable) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += s.offset
	case io.SeekEnd:
		offset += s.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the start")
	}
	if offset != s.offset {
		s.Close()
		s.offset = offset
	}
	return offset, nil
}

// Read implements io.Reader.
func (s *seekable) Read(p []byte) (int, error) {
	if s.open == nil {
		if s.offset >= s.size {
			return 0, io.EOF
		}
		s.open, _, s.err = s.attachments.Open(s.ctx, s.order, s.name, s.offset)
		if s.err != nil {
			return 0, s.err
		}
	}
	n, err := s.open.Read(p)
	s.offset += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// Close ends the reading.
func (s *seekable) Close() {
	if s.open != nil {
		_ = s.open.Close() // it only says that it was closed before
		s.open = nil
	}
}
