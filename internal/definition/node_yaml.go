package definition

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

const tooLarge = "a document is larger than 1 MiB"

// chunk is the text of one YAML document and the number of lines before it.
type chunk struct {
	lines int
	text  []byte
}

// splitYAML cuts a file at its document markers. YAML gives "---" and "..." at
// the start of a line that meaning everywhere, also inside quoted and block
// text. It is done here and not by the parser for two reasons: the parser drops
// what follows an empty document, and so the problems of every document are
// found, not only those before the first syntax error.
func splitYAML(src []byte) []chunk {
	var chunks []chunk
	var current chunk
	line := 0
	for rest := src; len(rest) > 0; line++ {
		text := rest
		if end := bytes.IndexByte(rest, '\n'); end >= 0 {
			text = rest[:end+1]
		}
		rest = rest[len(text):]
		start, end := isMarker(text, "---"), isMarker(text, "...")
		if !start && !end {
			current.text = append(current.text, text...)
			continue
		}
		chunks = append(chunks, current)
		current = chunk{lines: line}
		// What follows a marker on its line belongs to the new document; the
		// blanks keep its column.
		current.text = append([]byte("   "), text[3:]...)
	}
	return append(chunks, current)
}

func isMarker(line []byte, marker string) bool {
	rest, found := bytes.CutPrefix(line, []byte(marker))
	return found && (len(rest) == 0 || bytes.ContainsRune([]byte(" \t\n"), rune(rest[0])))
}

// parseYAML reads one document; nil for an empty one.
func parseYAML(c chunk) (n *node, err error) {
	if len(c.text) > MaxDocumentBytes {
		return nil, &syntaxError{position{c.lines + 1, 1}, tooLarge, ""}
	}
	// The text is the user's and the parser someone else's: whatever it trips
	// over is a text that can't be read, not the end of the controller.
	defer func() {
		if caught := recover(); caught != nil {
			n, err = nil, &syntaxError{position{c.lines + 1, 1}, "not valid YAML", ""}
		}
	}()
	y := &yamlReader{lines: c.lines, anchors: map[string]*node{}, used: map[*token.Token]bool{}}
	tokens := lexer.Tokenize(string(c.text))
	if err := y.checkTokens(tokens); err != nil {
		return nil, err
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, y.syntax(err, tokens)
	}
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if n != nil {
			return nil, y.fail(doc.Body.GetToken(), "a second value in one document", "")
		}
		if n, err = y.value(doc.Body); err != nil {
			return nil, err
		}
	}
	return n, y.checkComplete(tokens)
}

// yamlReader turns one document's syntax tree into nodes.
type yamlReader struct {
	lines   int
	anchors map[string]*node
	used    map[*token.Token]bool
}

func (y *yamlReader) position(tk *token.Token) position {
	if tk == nil || tk.Position == nil {
		return position{y.lines + 1, 1}
	}
	return position{y.lines + tk.Position.Line, tk.Position.Column}
}

func (y *yamlReader) fail(tk *token.Token, message, hint string) error {
	return &syntaxError{y.position(tk), message, hint}
}

// syntax translates the parser's error.
func (y *yamlReader) syntax(err error, tokens token.Tokens) error {
	var found yaml.Error
	if errors.As(err, &found) {
		return y.fail(found.GetToken(), "not valid YAML: "+found.GetMessage(), "")
	}
	var first *token.Token
	if len(tokens) > 0 {
		first = tokens[0]
	}
	return y.fail(first, "not valid YAML: "+err.Error(), "")
}

// checkTokens refuses, before the parser sees them, the parts of YAML that
// definitions have no use for, and nesting that the parser would follow with
// its stack or in quadratic time.
func (y *yamlReader) checkTokens(tokens token.Tokens) error {
	if len(tokens) > 3*maxNodes {
		return y.fail(tokens[0], fmt.Sprintf("more than %d values", maxNodes), "")
	}
	flow, run := 0, 0
	members := map[int]int{} // fields seen in the open block mapping at each column
	for i, tk := range tokens {
		switch tk.Type {
		case token.TagType:
			return y.fail(tk, "tags such as "+tk.Value+" are not supported", "quote the value if it is meant as text")
		case token.MappingKeyType:
			return y.fail(tk, "keys introduced by ? are not supported", "quote the value if it is meant as text")
		case token.DirectiveType:
			return y.fail(tk, "directives are not supported", "leave the line out")
		case token.MergeKeyType:
			return y.fail(tk, "merge keys (<<) are not supported", "write the fields out, or use an alias for a whole value")
		case token.MappingStartType, token.SequenceStartType:
			flow++
		case token.MappingEndType, token.SequenceEndType:
			flow--
		}
		if tk.Type == token.SequenceEntryType || tk.Type == token.AnchorType {
			run++
		} else if tk.Type != token.StringType || i == 0 || tokens[i-1].Type != token.AnchorType {
			run = 0 // not the name of an anchor
		}
		if flow > maxDepth || run > maxDepth {
			return y.fail(tk, fmt.Sprintf("nested deeper than %d levels", maxDepth), "")
		}
		if flow > 0 {
			continue
		}
		if err := y.countMember(members, tk); err != nil {
			return err
		}
	}
	return nil
}

// countMember bounds the fields of block mappings, for which the parser's time
// is quadratic.
func (y *yamlReader) countMember(members map[int]int, tk *token.Token) error {
	if tk.Type != token.MappingValueType && tk.Type != token.SequenceEntryType {
		return nil
	}
	first := tk
	if tk.Type == token.MappingValueType && tk.Prev != nil {
		first = tk.Prev
	}
	column := first.Position.Column
	for open := range members {
		if open > column {
			delete(members, open)
		}
	}
	if tk.Type == token.SequenceEntryType {
		return nil
	}
	if members[column]++; members[column] > maxMembers {
		return y.fail(first, fmt.Sprintf("a mapping with more than %d fields", maxMembers), "")
	}
	return nil
}

// checkComplete makes sure that the tree holds every value of the text. The
// parser ends without an error at some texts that it hasn't read to the end;
// half a definition must not be applied.
func (y *yamlReader) checkComplete(tokens token.Tokens) error {
	for _, tk := range tokens {
		switch tk.Type {
		case token.StringType, token.SingleQuoteType, token.DoubleQuoteType, token.IntegerType, token.FloatType,
			token.BinaryIntegerType, token.OctetIntegerType, token.HexIntegerType, token.BoolType, token.NullType,
			token.InfinityType, token.NanType, token.AliasType, token.AnchorType, token.LiteralType, token.FoldedType,
			token.MappingStartType, token.SequenceStartType:
			if !y.used[tk] {
				return y.fail(tk, "not valid YAML: unexpected here", "")
			}
		}
	}
	return nil
}

// take marks the token of a value as read and gives its position.
func (y *yamlReader) take(n ast.Node) position {
	tk := n.GetToken()
	y.used[tk] = true
	return y.position(tk)
}

// value turns one part of the syntax tree into a node.
func (y *yamlReader) value(from ast.Node) (*node, error) {
	n := new(node)
	switch from := from.(type) {
	case nil:
		n.pos = position{y.lines + 1, 1}
	case *ast.AnchorNode:
		return y.anchor(from)
	case *ast.AliasNode:
		return y.alias(from)
	case *ast.MappingNode:
		if err := y.mapping(n, from); err != nil {
			return nil, err
		}
	case *ast.MappingValueNode:
		n.kind = mapNode
		if err := y.member(n, from); err != nil {
			return nil, err
		}
		n.pos = n.entries[0].pos
	case *ast.SequenceNode:
		n.kind, n.pos = listNode, y.take(from)
		for _, item := range from.Values {
			child, err := y.value(item)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, child)
		}
	default:
		if err := y.scalar(n, from); err != nil {
			return nil, err
		}
	}
	return n, n.measure()
}

func (y *yamlReader) mapping(n *node, from *ast.MappingNode) error {
	n.kind, n.pos = mapNode, y.take(from)
	y.used[from.Start] = true
	for _, value := range from.Values {
		if err := y.member(n, value); err != nil {
			return err
		}
	}
	if !from.IsFlowStyle && len(n.entries) > 0 {
		// The parser gives the colon; people look for the first field.
		n.pos = n.entries[0].pos
	}
	return nil
}

func (y *yamlReader) member(n *node, from *ast.MappingValueNode) error {
	key := new(node)
	if err := y.scalar(key, from.Key); err != nil {
		return err
	}
	value, err := y.value(from.Value)
	if err != nil {
		return err
	}
	n.entries = append(n.entries, entry{key: key.text, pos: key.pos, value: value})
	return nil
}

func (y *yamlReader) anchor(from *ast.AnchorNode) (*node, error) {
	y.take(from)
	y.take(from.Name)
	n, err := y.value(from.Value)
	if err != nil {
		return nil, err
	}
	// Only now: an alias inside the value would be the value itself.
	y.anchors[from.Name.GetToken().Value] = n
	return n, nil
}

func (y *yamlReader) alias(from *ast.AliasNode) (*node, error) {
	y.take(from)
	y.take(from.Value)
	name := from.Value.GetToken().Value
	if n, ok := y.anchors[name]; ok {
		return n, nil
	}
	return nil, y.fail(from.GetToken(), "the alias *"+name+" has no anchor before it", "")
}

func (y *yamlReader) scalar(n *node, from ast.Node) error {
	n.pos = y.take(from)
	n.text = from.GetToken().Value
	switch from := from.(type) {
	case *ast.NullNode:
		n.kind = nullNode
	case *ast.BoolNode:
		n.kind, n.truth = boolNode, from.Value
	case *ast.IntegerNode:
		switch value := from.Value.(type) {
		case int64:
			n.kind, n.integer = intNode, value
		case uint64:
			n.setUnsigned(value)
		default:
			n.kind, n.tooBig = intNode, true
		}
	case *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		n.kind = floatNode
	case *ast.StringNode:
		n.kind, n.text = textNode, from.Value
	case *ast.LiteralNode:
		n.kind, n.text = textNode, from.Value.Value
		y.used[from.Start] = true
		y.used[from.Value.GetToken()] = true
	default:
		return y.fail(from.GetToken(), "not valid YAML: unexpected here", "")
	}
	return nil
}
