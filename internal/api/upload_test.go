package api_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/siding-dev/siding/client"
	"github.com/siding-dev/siding/internal/token"
)

func jsonBody(text string) io.Reader { return strings.NewReader(text) }

func TestUpload(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c, ctx := b.client(token.Operator), t.Context()
	data := bytes.Repeat([]byte("0123456789abcdef"), 200_000) // several chunks
	hash := sha256.Sum256(data)
	sum := hex.EncodeToString(hash[:])
	size := int64(len(data))
	if _, err := c.AddMany(ctx, []client.NewOrder{
		{Workflow: "scanned", Ref: "r", Attachments: []client.NewAttachment{{Name: "scan", Size: &size, SHA256: sum}, {Name: "any"}, {Name: "mark"}}},
		{Workflow: "scanned", Ref: "bad", Attachments: []client.NewAttachment{{Name: "scan", SHA256: sum}}},
	}); err != nil {
		t.Fatal(err)
	}
	info, err := c.Upload(ctx, "ref:r", "scan", bytes.NewReader(data), size)
	if err != nil || info.State != "complete" || info.SHA256 != sum {
		t.Fatalf("upload: %+v, %v", info, err)
	}
	// Of unknown length: chunked.
	if info, err = c.Upload(ctx, "ref:r", "any", io.MultiReader(strings.NewReader("x")), -1); err != nil || *info.Size != 1 {
		t.Fatalf("upload of unknown length: %+v, %v", info, err)
	}
	if _, err := c.CompleteAttachment(ctx, "ref:r", "mark"); err != nil {
		t.Fatal(err)
	}
	list, err := c.Expect(ctx, "ref:r", client.NewAttachment{Name: "more"}, "forgot")
	if err != nil || len(list) != 4 {
		t.Fatalf("expect: %+v, %v", list, err)
	}
	if _, err := c.Upload(ctx, "ref:r", "more", strings.NewReader(""), 0); err != nil {
		t.Errorf("upload of nothing: %v", err)
	}
	if o, err := c.Order(ctx, "ref:r"); err != nil || o.Word != "ready" {
		t.Errorf("with all attachments the order is %s, %v", o.Word, err)
	}
	if _, err := c.Upload(ctx, "ref:r", "scan", bytes.NewReader(data), size); code(err) != "attachment_complete" {
		t.Errorf("upload again: %v", err)
	}

	// Not what was announced.
	_, err = c.Upload(ctx, "ref:bad", "scan", strings.NewReader("hello"), 5)
	if p, ok := asProblem(err); !ok || p.Code != "attachment_check_failed" || !strings.Contains(p.Detail, sum) {
		t.Errorf("a failed check: %v", err)
	}
	if o, err := c.Order(ctx, "ref:bad"); err != nil || o.State != "attention" || o.Attention == nil || o.Attention.Reason != "attachment_check_failed" {
		t.Errorf("after a failed check: %+v, %v", o, err)
	}
	if list, err := c.Discard(ctx, "ref:bad", "scan", "wrong file"); err != nil || list[0].State != "discarded" {
		t.Errorf("discard: %+v, %v", list, err)
	}

	body, length, err := c.Download(ctx, "ref:r", "scan")
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if got, err := io.ReadAll(body); err != nil || length != size || !bytes.Equal(got, data) {
		t.Errorf("download: %d of %d bytes, %v", len(got), length, err)
	}
	b.ranges(data, sum)
}

func (b *bundle) ranges(data []byte, sum string) {
	t := b.t
	t.Helper()
	const path = "/api/v1/orders/ref:r/attachments/scan"
	for header, want := range map[string]struct {
		status int
		body   string
	}{
		"Range: bytes=0-3":             {206, "0123"},
		"Range: bytes=1048574-":        {206, string(data[1048574:])},
		"Range: bytes=-4":              {206, "cdef"},
		`If-None-Match: "` + sum + `"`: {304, ""},
	} {
		got := b.do(token.Viewer, http.MethodGet, path, nil, header)
		if got.status != want.status || got.body != want.body {
			t.Errorf("%s: %d, %d bytes, want %d, %d bytes", header, got.status, len(got.body), want.status, len(want.body))
		}
		if got.header.Get("ETag") != `"`+sum+`"` {
			t.Errorf("ETag %s", got.header.Get("ETag"))
		}
	}
	if got := b.do(token.Viewer, http.MethodGet, path, nil, "Range: bytes=99999999-"); got.status != 416 {
		t.Errorf("behind the end: %d", got.status)
	}
	if got := b.do(token.Viewer, http.MethodHead, path, nil); got.status != 200 || got.header.Get("Content-Disposition") != `attachment; filename="scan"` {
		t.Errorf("HEAD: %d %v", got.status, got.header)
	}
}
