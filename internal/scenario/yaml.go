package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// ParseError is one mistake in a scenario file.
type ParseError struct {
	File         string
	Line, Column int
	Message      string
}

// Error returns file:line:column: message.
func (e *ParseError) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// reader walks the syntax tree of one file and collects every mistake, so that
// the author sees all of them at once.
type reader struct {
	file string
	errs []*ParseError
	// orders counts the names that ranges made, against a file that asks for
	// more than memory holds.
	orders int
}

// document parses the bytes and returns the only document's top node.
func (r *reader) document(src []byte) ast.Node {
	file, err := parser.ParseBytes(src, 0)
	if err != nil {
		at, message := &token.Position{Line: 1, Column: 1}, err.Error()
		var syntax yaml.Error
		if errors.As(err, &syntax) {
			message = syntax.GetMessage()
			if tk := syntax.GetToken(); tk != nil && tk.Position != nil {
				at = tk.Position
			}
		}
		r.errs = append(r.errs, &ParseError{File: r.file, Line: at.Line, Column: at.Column, Message: message})
		return nil
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			r.fail(doc.Body, "a scenario file holds one document, this is another")
			return nil
		}
		body = doc.Body
	}
	if body == nil {
		r.errs = append(r.errs, &ParseError{File: r.file, Line: 1, Column: 1, Message: "the file is empty"})
		return nil
	}
	return body
}

// err joins the mistakes in the order of the file.
func (r *reader) err() error {
	slices.SortStableFunc(r.errs, func(a, b *ParseError) int {
		return cmp.Or(a.Line-b.Line, a.Column-b.Column)
	})
	errs := make([]error, len(r.errs))
	for i, e := range r.errs {
		errs[i] = e
	}
	return errors.Join(errs...)
}

func (r *reader) fail(at ast.Node, format string, args ...any) {
	line, column := position(at)
	r.errs = append(r.errs, &ParseError{File: r.file, Line: line, Column: column, Message: fmt.Sprintf(format, args...)})
}

// position is where a node begins: the parser's token of a block mapping is its
// first colon.
func position(n ast.Node) (line, column int) {
	switch x := n.(type) {
	case *ast.MappingNode:
		if !x.IsFlowStyle && len(x.Values) > 0 {
			return position(x.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return position(x.Key)
	}
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return 1, 1
	}
	p := n.GetToken().Position
	return p.Line, p.Column
}

// plain refuses what YAML has and the format doesn't need: anchors could make a
// file refer to itself, tags would give a value a second type.
func (r *reader) plain(n ast.Node) ast.Node {
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode:
		r.fail(n, "anchors and aliases are not part of the format")
		return nil
	case *ast.TagNode:
		r.fail(n, "tags are not part of the format")
		return nil
	}
	return n
}

func isNull(n ast.Node) bool {
	_, null := n.(*ast.NullNode)
	return n == nil || null
}

// describe names what a node is, for messages.
func describe(n ast.Node) string {
	switch x := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode:
		return fmt.Sprintf("the text %q", x.Value)
	case *ast.LiteralNode:
		return "a text"
	case *ast.NullNode:
		return "nothing"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "the number " + n.GetToken().Value
	case *ast.BoolNode:
		return "the truth value " + n.GetToken().Value
	}
	return "something else"
}

type field struct {
	name  string
	key   ast.Node
	value ast.Node
}

// fields returns the entries of a mapping in the file's order.
func (r *reader) fields(n ast.Node, what string) []field {
	var values []*ast.MappingValueNode
	switch x := r.plain(n).(type) {
	case *ast.MappingNode:
		values = x.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{x}
	case nil:
		if n == nil {
			r.fail(n, "%s must be a mapping", what)
		}
		return nil
	default:
		r.fail(n, "%s must be a mapping, not %s", what, describe(x))
		return nil
	}
	out := make([]field, 0, len(values))
	for _, v := range values {
		var name string
		switch k := v.Key.(type) {
		case *ast.StringNode:
			name = k.Value
		case *ast.IntegerNode:
			name = k.GetToken().Value
		default:
			r.fail(v.Key, "a field's name must be text")
			continue
		}
		out = append(out, field{name: name, key: v.Key, value: r.plain(v.Value)})
	}
	return out
}

// mapping is one with a fixed set of fields: each must be asked for, what is
// left over is unknown.
type mapping struct {
	r      *reader
	what   string
	node   ast.Node
	fields []field
	asked  []string
	taken  map[string]bool
}

func (r *reader) mapping(n ast.Node, what string) *mapping {
	return &mapping{r: r, what: what, node: n, fields: r.fields(n, what), taken: map[string]bool{}}
}

// get returns a field's value. A field that is there but empty is null.
func (m *mapping) get(name string) (ast.Node, bool) {
	m.asked = append(m.asked, name)
	for _, f := range m.fields {
		if f.name == name {
			m.taken[name] = true
			if f.value == nil {
				return nil, false // it was reported
			}
			return f.value, true
		}
	}
	return nil, false
}

// has says whether the field is given, without asking for it.
func (m *mapping) has(name string) bool {
	return slices.ContainsFunc(m.fields, func(f field) bool { return f.name == name })
}

// missing reports a field that must be there, unless what is there was
// reported already.
func (m *mapping) missing(name string) {
	if m.has(name) {
		return
	}
	if m.node != nil && m.fields == nil {
		if _, ok := m.r.plain(m.node).(*ast.MappingNode); !ok {
			return // it isn't a mapping, which was reported
		}
	}
	m.r.fail(m.node, "%s: %s is missing", m.what, name)
}

// done reports the fields that nothing asked for.
func (m *mapping) done() {
	for _, f := range m.fields {
		if !m.taken[f.name] {
			m.r.fail(f.key, "%s: unknown field %q (known: %s)", m.what, f.name, strings.Join(m.asked, ", "))
		}
	}
}

func (r *reader) text(n ast.Node, what string) (string, bool) {
	switch x := r.plain(n).(type) {
	case *ast.StringNode:
		return x.Value, true
	case *ast.LiteralNode:
		return x.Value.Value, true
	case nil:
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		r.fail(n, "%s must be text, not %s; quote it", what, describe(x))
	default:
		r.fail(n, "%s must be text, not %s", what, describe(x))
	}
	return "", false
}

// name reads a text that names something: it isn't empty.
func (r *reader) name(n ast.Node, what string) string {
	s, ok := r.text(n, what)
	if ok && s == "" {
		r.fail(n, "%s must not be empty", what)
	}
	return s
}

func (r *reader) integer(n ast.Node, what string) (int64, bool) {
	switch x := r.plain(n).(type) {
	case *ast.IntegerNode:
		switch v := x.Value.(type) {
		case int64:
			return v, true
		case uint64:
			if v <= 1<<62 {
				return int64(v), true
			}
		}
		r.fail(n, "%s is too large", what)
	case nil:
	default:
		r.fail(n, "%s must be a whole number, not %s", what, describe(x))
	}
	return 0, false
}

func (r *reader) truth(n ast.Node, what string) bool {
	switch x := r.plain(n).(type) {
	case *ast.BoolNode:
		return x.Value
	case nil:
	default:
		r.fail(n, "%s must be true or false, not %s", what, describe(x))
	}
	return false
}

func (r *reader) list(n ast.Node, what string) ([]ast.Node, bool) {
	switch x := r.plain(n).(type) {
	case *ast.SequenceNode:
		out := make([]ast.Node, 0, len(x.Values))
		for _, v := range x.Values {
			if v = r.plain(v); v != nil {
				out = append(out, v)
			}
		}
		return out, true
	case nil:
	default:
		r.fail(n, "%s must be a list, not %s", what, describe(x))
	}
	return nil, false
}

// word reads one of a closed list of words.
func (r *reader) word(n ast.Node, what string, known []string) string {
	s, ok := r.text(n, what)
	if ok && !slices.Contains(known, s) {
		r.fail(n, "%s: unknown word %q (known: %s)", what, s, strings.Join(known, ", "))
	}
	return s
}

// value turns a node into what encoding/json can write.
func (r *reader) value(n ast.Node) any {
	switch x := r.plain(n).(type) {
	case nil, *ast.NullNode:
		return nil
	case *ast.StringNode:
		return x.Value
	case *ast.LiteralNode:
		return x.Value.Value
	case *ast.IntegerNode:
		return x.Value
	case *ast.FloatNode:
		return x.Value
	case *ast.BoolNode:
		return x.Value
	case *ast.SequenceNode:
		out := make([]any, 0, len(x.Values))
		for _, v := range x.Values {
			out = append(out, r.value(v))
		}
		return out
	case *ast.MappingNode, *ast.MappingValueNode:
		out := map[string]any{}
		for _, f := range r.fields(x, "it") {
			out[f.name] = r.value(f.value)
		}
		return out
	default:
		r.fail(n, "this kind of value can't be used here")
		return nil
	}
}
