package definition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// cursor turns rising byte offsets of a text into positions.
type cursor struct {
	src    []byte
	offset int
	pos    position
}

func newCursor(src []byte) *cursor { return &cursor{src: src, pos: position{1, 1}} }

// at moves to an offset, which must not lie before the last one.
func (c *cursor) at(offset int) position {
	offset = min(offset, len(c.src))
	for c.offset < offset {
		r, width := utf8.DecodeRune(c.src[c.offset:])
		c.offset += width
		if r == '\n' {
			c.pos.line, c.pos.column = c.pos.line+1, 1
		} else {
			c.pos.column++
		}
	}
	return c.pos
}

// parseJSONStream reads any number of JSON values, one after the other.
func parseJSONStream(src []byte) ([]*node, error) {
	var nodes []*node
	where, start := newCursor(src), 0
	for {
		start += len(src[start:]) - len(bytes.TrimLeft(src[start:], " \t\r\n"))
		if start == len(src) {
			return nodes, nil
		}
		pos := where.at(start)
		end, err := valueEnd(src, start)
		if err != nil {
			return nil, err
		}
		if end-start > MaxDocumentBytes {
			return nil, &syntaxError{pos, tooLarge, ""}
		}
		r := &jsonReader{dec: json.NewDecoder(bytes.NewReader(src[start:end])), src: src, start: start, where: where}
		r.dec.UseNumber()
		n, err := r.value(1)
		if err != nil {
			return nil, err
		}
		nodes, start = append(nodes, n), end
	}
}

// valueEnd finds the end of the JSON value that starts at an offset, and checks
// its syntax, which the token reader doesn't do completely.
func valueEnd(src []byte, start int) (int, error) {
	dec := json.NewDecoder(bytes.NewReader(src[start:]))
	var raw json.RawMessage
	err := dec.Decode(&raw)
	if err == nil {
		return start + int(dec.InputOffset()), nil
	}
	offset, message := len(src), "the text ends too early"
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		// The offset counts the offending byte.
		offset, message = start+max(int(syntax.Offset)-1, 0), syntax.Error()
	} else if !errors.Is(err, io.ErrUnexpectedEOF) {
		message = err.Error()
	}
	return 0, &syntaxError{newCursor(src).at(offset), "not valid JSON: " + message, ""}
}

// jsonReader builds nodes from tokens.
type jsonReader struct {
	dec   *json.Decoder
	src   []byte
	start int // where the decoder's text starts in src
	where *cursor
}

// token reads the next token and its position.
func (r *jsonReader) token() (json.Token, position, int, error) {
	from := r.start + int(r.dec.InputOffset())
	from += len(r.src[from:]) - len(bytes.TrimLeft(r.src[from:], " \t\r\n:,"))
	pos := r.where.at(from)
	tok, err := r.dec.Token()
	if err != nil {
		return nil, pos, from, &syntaxError{pos, "not valid JSON: " + err.Error(), ""}
	}
	return tok, pos, from, nil
}

// value reads one value. The depth is checked on the way down: an error after
// the whole tree is built would come too late for the stack.
func (r *jsonReader) value(depth int) (*node, error) {
	tok, pos, from, err := r.token()
	if err != nil {
		return nil, err
	}
	n := &node{pos: pos}
	switch tok := tok.(type) {
	case nil:
		n.kind = nullNode
	case bool:
		n.kind, n.truth = boolNode, tok
		n.text = fmt.Sprint(tok)
	case string:
		n.kind, n.text = textNode, tok
	case json.Number:
		n.text = tok.String()
		if strings.ContainsAny(n.text, ".eE") {
			n.kind = floatNode
		} else {
			n.setInteger(n.text)
		}
	case json.Delim:
		if depth > maxDepth {
			return nil, &syntaxError{pos, fmt.Sprintf("nested deeper than %d levels", maxDepth), ""}
		}
		if err := r.children(n, r.src[from], depth); err != nil {
			return nil, err
		}
	}
	return n, n.measure()
}

// children reads what stands between two brackets.
func (r *jsonReader) children(n *node, open byte, depth int) error {
	n.kind = listNode
	if open == '{' {
		n.kind = mapNode
	}
	for r.dec.More() {
		var e entry
		if n.kind == mapNode {
			key, pos, _, err := r.token()
			if err != nil {
				return err
			}
			e.key, _ = key.(string)
			e.pos = pos
		}
		child, err := r.value(depth + 1)
		if err != nil {
			return err
		}
		if e.value = child; n.kind == mapNode {
			n.entries = append(n.entries, e)
		} else {
			n.items = append(n.items, child)
		}
	}
	_, _, _, err := r.token()
	return err
}
