package definition

import (
	"encoding/json"
	"errors"
	"fmt"
)

// OrderingKind says which orders of a workflow must run in sequence
// (docs/concepts.md, "Keys and release").
type OrderingKind string

// The kinds of ordering. There is no default: a workflow must state one.
const (
	// Independent orders may pass each other.
	Independent OrderingKind = "independent"
	// Strict makes one sequence of all orders of the workflow.
	Strict OrderingKind = "strict"
	// KeyFromOrder runs orders with the same key in sequence; the key is given
	// with the order.
	KeyFromOrder OrderingKind = "key_from_order"
	// KeyTemplate is the same with a key made of the order's arguments.
	KeyTemplate OrderingKind = "key_template"
)

// Ordering is a workflow's rule of sequence.
type Ordering struct {
	Kind OrderingKind
	// Template makes the key from the arguments, see Key. Set exactly for KeyTemplate.
	Template string
}

const (
	orderingHint = `say one of: independent, strict, {key: order}, {key: "{customer}"} (a template over arguments)`
	keyOfOrder   = "order"
)

// MarshalJSON writes "independent", "strict" or {"key": ...}.
func (o Ordering) MarshalJSON() ([]byte, error) {
	key := o.Template
	switch o.Kind {
	case Independent, Strict:
		return marshal(string(o.Kind))
	case KeyFromOrder:
		key = keyOfOrder
	case KeyTemplate:
	default:
		return nil, fmt.Errorf("unknown ordering %q", o.Kind)
	}
	return marshal(map[string]string{"key": key})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (o *Ordering) UnmarshalJSON(data []byte) error {
	var word string
	if json.Unmarshal(data, &word) == nil {
		*o = Ordering{Kind: OrderingKind(word)}
		if o.Kind != Independent && o.Kind != Strict {
			return fmt.Errorf("unknown ordering %q", word)
		}
		return nil
	}
	var keyed struct{ Key string }
	if err := json.Unmarshal(data, &keyed); err != nil {
		return fmt.Errorf("read ordering: %w", err)
	}
	if keyed.Key == "" {
		return errors.New("ordering has no key")
	}
	*o = orderingOfKey(keyed.Key)
	return nil
}

func orderingOfKey(key string) Ordering {
	if key == keyOfOrder {
		return Ordering{Kind: KeyFromOrder}
	}
	return Ordering{Kind: KeyTemplate, Template: key}
}

func (d *decoder) ordering(to *Ordering) setter {
	return func(n *node, path string) {
		switch n.kind {
		case textNode:
			*to = Ordering{Kind: OrderingKind(n.text)}
			if to.Kind != Independent && to.Kind != Strict {
				d.at(n.pos, path, "unknown ordering "+quote(n.text), orderingHint)
			}
		case mapNode:
			var key string
			d.object(n, path, []field{{name: "key", set: text(d, &key)}})
			if key == "" {
				d.add(member(path, "key"), "missing", orderingHint)
			}
			*to = orderingOfKey(key)
		default:
			d.at(n.pos, path, "must be text or a mapping, is "+n.kind.String(), orderingHint)
		}
	}
}

func (o Ordering) validate(v *validation, path string) {
	switch o.Kind {
	case "":
		v.add(path, "missing: a workflow must say its ordering", orderingHint)
	case Independent, Strict, KeyFromOrder:
		if o.Template != "" {
			v.add(path, fmt.Sprintf("%s ordering has no template", o.Kind), "")
		}
	case KeyTemplate:
		if _, err := ParseTemplate(o.Template); err != nil {
			v.add(member(path, "key"), err.Error(), `write order, or a template such as "{customer}" or "{customer}/{region}"`)
		}
	default:
		v.add(path, "unknown ordering "+quote(string(o.Kind)), orderingHint)
	}
}
