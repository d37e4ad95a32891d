package definition

import (
	"fmt"
	"math"
	"strconv"
)

// Bounds of a text. They are far above what people write, and keep the work
// for a hostile text small.
const (
	// MaxDocumentBytes bounds one document.
	MaxDocumentBytes = 1 << 20
	// MaxFileBytes bounds one file with all its documents.
	MaxFileBytes = 16 << 20
	// maxDepth bounds how deeply mappings and lists are nested.
	maxDepth = 64
	// maxNodes bounds the values of one document, aliases written out.
	maxNodes = 200_000
	// maxMembers bounds the fields of one mapping.
	maxMembers = 1000
)

// nodeKind is the kind of a value in YAML or JSON.
type nodeKind int

const (
	nullNode nodeKind = iota
	boolNode
	intNode
	floatNode
	textNode
	mapNode
	listNode
)

var nodeKindNames = [...]string{
	nullNode: "nothing", boolNode: "a boolean", intNode: "a number", floatNode: "a number with a fraction",
	textNode: "text", mapNode: "a mapping", listNode: "a list",
}

func (k nodeKind) String() string { return nodeKindNames[k] }

// node is one value of a text with its position. YAML and JSON are both read
// into it. An alias shares the node of its anchor, so the tree may be a graph;
// size and depth count it as if it were written out.
type node struct {
	kind    nodeKind
	pos     position
	text    string // textNode: its value; numbers and booleans: as they are written
	integer int64  // intNode
	tooBig  bool   // intNode: beyond int64
	truth   bool   // boolNode
	entries []entry
	items   []*node
	size    int
	depth   int
}

// entry is one field of a mapping.
type entry struct {
	key   string
	pos   position
	value *node
}

// measure sets size and depth from the children.
func (n *node) measure() error {
	n.size, n.depth = 1, 1
	add := func(child *node) {
		n.size += child.size
		n.depth = max(n.depth, child.depth+1)
	}
	for _, e := range n.entries {
		add(e.value)
	}
	for _, item := range n.items {
		add(item)
	}
	switch {
	case len(n.entries) > maxMembers:
		return &syntaxError{n.pos, fmt.Sprintf("a mapping with more than %d fields", maxMembers), ""}
	case n.depth > maxDepth:
		return &syntaxError{n.pos, fmt.Sprintf("nested deeper than %d levels", maxDepth), ""}
	case n.size > maxNodes:
		return &syntaxError{n.pos, fmt.Sprintf("more than %d values", maxNodes), ""}
	}
	return nil
}

// setInteger reads a decimal integer into the node.
func (n *node) setInteger(text string) {
	value, err := strconv.ParseInt(text, 10, 64)
	n.kind, n.integer, n.tooBig = intNode, value, err != nil
}

// setUnsigned is setInteger for a value that was read already.
func (n *node) setUnsigned(value uint64) {
	n.kind = intNode
	if n.tooBig = value > math.MaxInt64; !n.tooBig {
		n.integer = int64(value)
	}
}

// syntaxError says that a text can't be read as YAML or JSON, or not within
// the bounds.
type syntaxError struct {
	pos     position
	message string
	hint    string
}

func (e *syntaxError) Error() string { return e.message }
