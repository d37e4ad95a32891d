package definition

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"unicode/utf8"
)

// Parse reads all documents of a file, YAML or JSON, and checks them. The name
// is used in problems, and ".json" at its end refuses YAML.
//
// The error is an *Errors with all problems of all documents; no document is
// returned then.
func Parse(filename string, src []byte) ([]Document, error) {
	nodes, problems := readFile(filename, src)
	var docs []Document
	first := map[string]Document{}
	for _, n := range nodes {
		doc, found := decodeDocument(filename, n, "", "")
		problems = append(problems, found...)
		if doc.body() == nil {
			continue
		}
		id := string(doc.Kind) + " " + doc.Name()
		if before, twice := first[id]; twice && doc.Name() != "" {
			problems = append(problems, doc.Problem("name", CodeInvalid,
				fmt.Sprintf("%s is defined twice in this file", id), fmt.Sprintf("first in line %d", before.Line)))
		} else {
			first[id] = doc
		}
		docs = append(docs, doc)
	}
	if len(nodes) == 0 && len(problems) == 0 {
		problems = append(problems, Problem{
			File: filename, Line: 1, Column: 1, Code: CodeInvalid, Message: "the file holds no definition",
		})
	}
	if err := asError(problems); err != nil {
		return nil, err
	}
	return docs, nil
}

// ParseJSON reads one definition from the body of a PUT. Kind and name come from
// the address; the body may repeat them, but not differ. The error is an
// *Errors.
func ParseJSON(kind Kind, name string, body []byte) (Document, error) {
	body, syntax := checkText(body, MaxDocumentBytes)
	var nodes []*node
	if syntax == nil {
		nodes, syntax = parseJSONStream(body)
	}
	if syntax == nil && len(nodes) != 1 {
		syntax = &syntaxError{position{1, 1}, fmt.Sprintf("the body must be one JSON object, holds %d values", len(nodes)), ""}
	}
	if syntax != nil {
		return Document{}, asError([]Problem{syntaxProblem("", syntax)})
	}
	doc, problems := decodeDocument("", nodes[0], kind, name)
	if err := asError(problems); err != nil {
		return Document{}, err
	}
	return doc, nil
}

// Validate fills in the defaults of a document that was built by a program, and
// checks it. The error is an *Errors.
func Validate(doc *Document) error {
	r := newReport(doc.File)
	r.positions = doc.positions
	check(doc, r)
	return asError(r.problems)
}

func check(doc *Document, r *report) {
	b := doc.body()
	if b == nil {
		r.add("", fmt.Sprintf("a document of kind %q without a definition", doc.Kind), "")
		return
	}
	b.normalise()
	v := &validation{report: r}
	v.name("name", doc.Name())
	b.validate(v)
}

// readFile turns a file into one node per document.
func readFile(filename string, src []byte) (nodes []*node, problems []Problem) {
	src, err := checkText(src, MaxFileBytes)
	if err != nil {
		return nil, []Problem{syntaxProblem(filename, err)}
	}
	mustBeJSON := filepath.Ext(filename) == ".json"
	if mustBeJSON || bytes.HasPrefix(bytes.TrimLeft(src, " \t\n"), []byte("{")) {
		nodes, err = parseJSONStream(src)
		switch {
		case err == nil:
			return nodes, nil
		case mustBeJSON:
			return nil, []Problem{syntaxProblem(filename, err)}
		}
		// A flow mapping of YAML starts with the same character.
		nodes = nil
	}
	for _, c := range splitYAML(src) {
		n, err := parseYAML(c)
		if err != nil {
			problems = append(problems, syntaxProblem(filename, err))
		} else if n != nil {
			nodes = append(nodes, n)
		}
	}
	return nodes, problems
}

// checkText refuses what is no text, and makes line ends alike.
func checkText(src []byte, limit int) ([]byte, error) {
	if len(src) > limit {
		return nil, &syntaxError{position{1, 1}, fmt.Sprintf("larger than %d MiB", limit>>20), ""}
	}
	src = bytes.TrimPrefix(src, []byte("\xef\xbb\xbf"))
	src = bytes.ReplaceAll(src, []byte("\r\n"), []byte("\n"))
	src = bytes.ReplaceAll(src, []byte("\r"), []byte("\n"))
	if utf8.Valid(src) {
		return src, nil
	}
	where := newCursor(src)
	for where.offset < len(src) {
		if r, width := utf8.DecodeRune(src[where.offset:]); r == utf8.RuneError && width == 1 {
			break
		}
		where.at(where.offset + 1)
	}
	return nil, &syntaxError{where.pos, "not text in UTF-8", ""}
}

func syntaxProblem(filename string, err error) Problem {
	p := Problem{File: filename, Code: CodeInvalid, Message: err.Error()}
	var at *syntaxError
	if errors.As(err, &at) {
		p.Line, p.Column, p.Hint = at.pos.line, at.pos.column, at.hint
	}
	return p
}

// decodeDocument reads and checks one document. If kind is set, the document
// has that kind and name; otherwise it must say both.
func decodeDocument(filename string, n *node, kind Kind, name string) (Document, []Problem) {
	d := &decoder{newReport(filename)}
	d.positions[""] = n.pos
	doc := Document{Kind: kind, File: filename, Line: n.pos.line, positions: d.positions}
	if !d.isKind(n, "", mapNode) {
		return doc, d.problems
	}
	said := d.kind(n)
	if kind == "" {
		doc.Kind = said
	}
	if !doc.allocate() {
		d.add("kind", "missing", suggest("", kindNames()))
		return doc, d.problems
	}
	b := doc.body()
	ignore := func(*node, string) {}
	d.object(n, "", append([]field{{name: "kind", set: ignore}}, b.fields(d)...))
	if kind != "" {
		if said != "" && said != kind {
			d.add("kind", fmt.Sprintf("is %s, but the address says %s", cut(string(said)), kind), "leave it out")
		}
		if doc.Name() != "" && doc.Name() != name {
			d.add("name", fmt.Sprintf("is %s, but the address says %s", cut(doc.Name()), name), "leave it out")
		}
		doc.setName(name)
	}
	check(&doc, d.report)
	return doc, d.problems
}

// kind finds the kind that a document says it is of.
func (d *decoder) kind(n *node) Kind {
	for _, e := range n.entries {
		if e.key != "kind" || e.value.kind == nullNode {
			continue
		}
		var kind Kind
		text(d, &kind)(e.value, "kind")
		if known := (&Document{Kind: kind}).allocate(); !known && !d.seen["kind"] {
			d.at(e.value.pos, "kind", "unknown kind "+quote(string(kind)), suggest(string(kind), kindNames()))
		}
		return kind
	}
	return ""
}

func kindNames() []string {
	var names []string
	for _, k := range Kinds() {
		names = append(names, string(k))
	}
	return names
}

func (d *Document) setName(name string) {
	switch d.Kind {
	case KindQueue:
		d.Queue.Name = name
	case KindLock:
		d.Lock.Name = name
	case KindAgent:
		d.Agent.Name = name
	case KindWorkflow:
		d.Workflow.Name = name
	}
}
