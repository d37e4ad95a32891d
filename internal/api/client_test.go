package api_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/client"
	"github.com/siding-dev/siding/internal/api"
	"github.com/siding-dev/siding/internal/attachment"
	"github.com/siding-dev/siding/internal/catalog"
	"github.com/siding-dev/siding/internal/order"
	"github.com/siding-dev/siding/internal/queue"
	"github.com/siding-dev/siding/internal/session"
	"github.com/siding-dev/siding/internal/token"
	"github.com/siding-dev/siding/internal/why"
)

// The client has types of its own, so that programs that use it don't get the
// server's packages. They have the same fields.
func TestClientKnowsEveryField(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]any{
		{order.Order{}, client.Order{}},
		{order.Attention{}, client.Attention{}},
		{order.AttachmentState{}, client.AttachmentSummary{}},
		{order.Hold{}, client.Hold{}},
		{order.Added{}, client.Added{}},
		{order.Page{}, client.OrderPage{}},
		{order.Moment{}, client.Moment{}},
		{order.StepOutput{}, client.StepOutput{}},
		{order.Line{}, client.Line{}},
		{order.PauseEntry{}, client.Pause{}},
		{order.Event{}, client.Event{}},
		{order.Events{}, client.EventPage{}},
		{why.Answer{}, client.Why{}},
		{why.Obstacle{}, client.Obstacle{}},
		{attachment.Info{}, client.Attachment{}},
		{catalog.Entry{}, client.Definition{}},
		{catalog.Change{}, client.Change{}},
		{session.Session{}, client.Session{}},
		{session.Page{}, client.SessionPage{}},
		{token.Token{}, client.Token{}},
		{queue.Page{}, client.ListPage{}},
		{queue.Entry{}, client.ListEntry{}},
		{queue.Place{}, client.Place{}},
		{queue.Places{}, client.Places{}},
		{queue.Count{}, client.Count{}},
		{api.Problem{}, client.Problem{}},
		{api.ProblemItem{}, client.ProblemItem{}},
	} {
		server, known := fields(pair[0]), fields(pair[1])
		if diff := cmp.Diff(server, known); diff != "" {
			t.Errorf("%T and %T differ: %s", pair[0], pair[1], diff)
		}
	}
}

// fields are the JSON names of a struct's fields, with the kind of each.
func fields(value any) []string {
	typ := reflect.TypeOf(value)
	var names []string
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		kind := f.Type
		for kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		names = append(names, name+" "+kind.Kind().String())
	}
	slices.Sort(names)
	return names
}
