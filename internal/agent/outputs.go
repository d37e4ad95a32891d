package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// maxOutputsBytes bounds the JSON object with an attempt's output values.
const maxOutputsBytes = 1 << 20

// checkOutputs says what is wrong with output values: they must be one JSON
// object of at most 1 MiB.
func checkOutputs(outputs []byte) error {
	if len(outputs) > maxOutputsBytes {
		return fmt.Errorf("outputs: more than %d bytes", maxOutputsBytes)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(outputs, &object); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return fmt.Errorf("outputs: not valid JSON at byte %d: %w", syntax.Offset, err)
		}
		return errors.New("outputs: not a JSON object")
	}
	if object == nil {
		return errors.New("outputs: null is not a JSON object")
	}
	return nil
}

// readOutputs reads the output values that a job wrote to a file, nil if it
// wrote none. The job may have put anything there, so only a regular file is
// read and links aren't followed.
func readOutputs(path string) (json.RawMessage, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("outputs: file can't be read: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("outputs: file can't be read: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("outputs: not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(file, maxOutputsBytes+1))
	if err != nil {
		return nil, fmt.Errorf("outputs: file can't be read: %w", err)
	}
	if len(text) <= maxOutputsBytes {
		text = bytes.TrimSpace(text)
	}
	if len(text) == 0 {
		return nil, nil
	}
	if err := checkOutputs(text); err != nil {
		return nil, err
	}
	return text, nil
}
