package definition

import (
	"fmt"
	"math"
	"strings"
)

// decoder turns nodes into types and reports what doesn't fit.
type decoder struct {
	*report
}

// setter stores a node's value somewhere.
type setter func(n *node, path string)

// field is one known field of a mapping.
type field struct {
	name string
	set  setter
	// required fields are a problem when left out. Most are required by a rule
	// of validate instead, which holds for documents built by programs too.
	required bool
}

// object reads a mapping with known fields. A field without a value counts as
// left out.
func (d *decoder) object(n *node, path string, fields []field) {
	if !d.isKind(n, path, mapNode) {
		return
	}
	given := map[string]bool{}
	d.members(n, path, func(e entry, at string) {
		for _, f := range fields {
			if f.name != e.key {
				continue
			}
			if e.value.kind != nullNode {
				given[f.name] = true
				f.set(e.value, at)
			}
			return
		}
		names := make([]string, len(fields))
		for i, f := range fields {
			names[i] = f.name
		}
		d.at(e.pos, at, "unknown field", suggest(e.key, names))
	})
	for _, f := range fields {
		if f.required && !given[f.name] {
			d.add(member(path, f.name), "missing", "")
		}
	}
}

// members visits the fields of a mapping and refuses names that occur twice.
func (d *decoder) members(n *node, path string, visit func(e entry, path string)) {
	first := make(map[string]position, len(n.entries))
	for _, e := range n.entries {
		at := member(path, e.key)
		if pos, twice := first[e.key]; twice {
			d.record(e.pos, at, "given twice", fmt.Sprintf("first in line %d", pos.line))
			continue
		}
		first[e.key] = e.pos
		d.positions[at] = e.value.pos
		if e.value.kind == nullNode {
			d.positions[at] = e.pos
		}
		visit(e, at)
	}
}

// isKind reports whether the node is of a kind, as a problem if not.
func (d *decoder) isKind(n *node, path string, want nodeKind) bool {
	if n.kind == want {
		return true
	}
	hint := ""
	switch {
	case want == textNode && (n.kind == boolNode || n.kind == intNode || n.kind == floatNode):
		hint = "put it in quotes"
	case want == intNode && n.kind == textNode:
		hint = "write the number without quotes"
	case want == listNode && n.kind != mapNode && n.text != "":
		hint = "write [" + n.text + "]"
	}
	d.at(n.pos, path, "must be "+want.String()+", is "+n.kind.String(), hint)
	return false
}

// readText reads text as it is.
func (d *decoder) readText(n *node, path string) (string, bool) {
	if !d.isKind(n, path, textNode) {
		return "", false
	}
	return n.text, d.storable(n, path)
}

// storable refuses the one character that Postgres can't store in text.
func (d *decoder) storable(n *node, path string) bool {
	if strings.ContainsRune(n.text, 0) {
		d.at(n.pos, path, "holds a zero character", "")
		return false
	}
	return true
}

// text sets a string.
func text[T ~string](d *decoder, to *T) setter {
	return func(n *node, path string) {
		if value, ok := d.readText(n, path); ok {
			*to = T(value)
		}
	}
}

// word is readText for values that people also write as plain numbers: the
// number is taken as it is written.
func (d *decoder) word(n *node, path string) (string, bool) {
	if n.kind == intNode || n.kind == floatNode {
		return n.text, true
	}
	return d.readText(n, path)
}

// maxInt bounds the whole numbers of definitions, which Postgres stores as integer.
const maxInt = 1_000_000_000

// readInt reads a whole number between -maxInt and maxInt.
func (d *decoder) readInt(n *node, path string) (int, bool) {
	if !d.isKind(n, path, intNode) {
		return 0, false
	}
	if n.tooBig || n.integer > maxInt || n.integer < -maxInt {
		d.at(n.pos, path, "the number is too large", fmt.Sprintf("at most %d", maxInt))
		return 0, false
	}
	return int(n.integer), true
}

func (d *decoder) integer(to *int) setter {
	return func(n *node, path string) {
		if value, ok := d.readInt(n, path); ok {
			*to = value
		}
	}
}

func (d *decoder) optionalInteger(to **int) setter {
	return func(n *node, path string) {
		if value, ok := d.readInt(n, path); ok {
			*to = &value
		}
	}
}

// optionalSize sets a number of bytes.
func (d *decoder) optionalSize(to **int64) setter {
	return func(n *node, path string) {
		if !d.isKind(n, path, intNode) {
			return
		}
		if n.tooBig || n.integer == math.MinInt64 {
			d.at(n.pos, path, "the number is too large", "")
			return
		}
		value := n.integer
		*to = &value
	}
}

func (d *decoder) boolean(to *bool) setter {
	return func(n *node, path string) {
		if d.isKind(n, path, boolNode) {
			*to = n.truth
		}
	}
}

func (d *decoder) duration(to **Duration) setter {
	return func(n *node, path string) {
		const hint = "write it with a unit, such as 30s, 15m or 24h"
		if n.kind != textNode {
			d.at(n.pos, path, "must be a duration, is "+n.kind.String(), hint)
			return
		}
		value, err := ParseDuration(n.text)
		if err != nil {
			d.at(n.pos, path, err.Error(), hint)
			return
		}
		*to = &value
	}
}

// list visits the entries of a list.
func (d *decoder) list(n *node, path string, visit setter) {
	if !d.isKind(n, path, listNode) {
		return
	}
	for i, item := range n.items {
		at := element(path, i)
		d.positions[at] = item.pos
		visit(item, at)
	}
}

// texts sets a list of strings, read by read. Entries that can't be read stay
// empty, so that the places of the others are right.
func (d *decoder) texts(to *[]string, read func(n *node, path string) (string, bool)) setter {
	return func(n *node, path string) {
		d.list(n, path, func(n *node, path string) {
			value, _ := read(n, path)
			*to = append(*to, value)
		})
	}
}
