package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// workdir is the private directory of one attempt, and the job's working
// directory. It holds attachments/, tmp/ (TMPDIR), order.json and, once the job
// has written it, output.json.
type workdir string

func (d workdir) tmp() string                   { return filepath.Join(string(d), "tmp") }
func (d workdir) orderFile() string             { return filepath.Join(string(d), "order.json") }
func (d workdir) outputFile() string            { return filepath.Join(string(d), "output.json") }
func (d workdir) attachment(name string) string { return filepath.Join(string(d), "attachments", name) }
func (d workdir) remove() error                 { return removeTree(string(d)) }

// makeWorkdir makes the directory, empty and closed to other users.
func makeWorkdir(sessionDir string, ref protocol.LeaseRef) (workdir, error) {
	sessionDir, err := filepath.Abs(sessionDir)
	if err != nil {
		return "", fmt.Errorf("working directory: %w", err)
	}
	dir := workdir(filepath.Join(sessionDir, fmt.Sprintf("%d-%d", ref.Order, ref.Lease)))
	if err := os.MkdirAll(sessionDir, 0o700); err != nil {
		return "", fmt.Errorf("working directory: %w", err)
	}
	for _, path := range []string{string(dir), dir.tmp(), dir.attachment("")} {
		if err := os.Mkdir(path, 0o700); err != nil {
			return dir, fmt.Errorf("working directory: %w", err)
		}
	}
	return dir, nil
}

// orderDocument is the content of order.json.
type orderDocument struct {
	ID          int64                `json:"id"`
	Ref         string               `json:"ref,omitempty"`
	Workflow    string               `json:"workflow"`
	Version     int                  `json:"version"`
	StepPath    string               `json:"step_path"`
	Job         string               `json:"job"`
	Key         string               `json:"key,omitempty"`
	Queue       string               `json:"queue,omitempty"`
	Attempt     int                  `json:"attempt"`
	Args        json.RawMessage      `json:"args"`
	Attachments []attachmentDocument `json:"attachments"`
}

type attachmentDocument struct {
	Name   string `json:"name"`
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"`
}

// writeOrder writes order.json.
func (d workdir) writeOrder(lease protocol.Lease) error {
	document := orderDocument{
		ID: lease.Order, Ref: lease.Ref, Workflow: lease.Workflow, Version: lease.Version, StepPath: lease.StepPath,
		Job: lease.Job.Name, Key: lease.Key, Queue: lease.Queue, Attempt: lease.Attempt, Args: lease.Args,
		Attachments: make([]attachmentDocument, len(lease.Attachments)),
	}
	if len(document.Args) == 0 {
		document.Args = json.RawMessage("{}")
	}
	for i, attachment := range lease.Attachments {
		document.Attachments[i] = attachmentDocument{
			Name: attachment.Name, Path: d.attachment(attachment.Name), Size: attachment.Size, SHA256: attachment.SHA256,
		}
	}
	text, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return fmt.Errorf("order file: %w", err)
	}
	if err := os.WriteFile(d.orderFile(), append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("order file: %w", err)
	}
	return nil
}

// validFileName says whether an attachment's name can be the name of a file in
// its directory and nowhere else.
func validFileName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= 255 && !strings.ContainsAny(name, "/\\\x00")
}
