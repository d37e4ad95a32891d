package definition

import (
	"strings"
	"testing"
)

// TestLoadAcrossVersions: a replica reads what a newer one has stored, but
// doesn't leave out a step that it doesn't know.
func TestLoadAcrossVersions(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		kind Kind
		text string
		good bool
	}{
		"unknown field":     {KindQueue, `{"kind":"queue","name":"q","penalty":0,"later":1}`, true},
		"unknown kind":      {"schedule", `{}`, false},
		"unknown step":      {KindWorkflow, `{"name":"w","ordering":"strict","steps":[{"fork":[]}]}`, false},
		"unknown ordering":  {KindWorkflow, `{"name":"w","ordering":"later","steps":[]}`, false},
		"ordering no key":   {KindWorkflow, `{"name":"w","ordering":{"by":"x"},"steps":[]}`, false},
		"broken job":        {KindWorkflow, `{"name":"w","ordering":"strict","steps":[{"job":1}]}`, false},
		"broken lock":       {KindWorkflow, `{"name":"w","ordering":"strict","steps":[{"lock":{"L1":"some"}}]}`, false},
		"broken duration":   {KindWorkflow, `{"name":"w","ordering":"strict","wait_limit":5,"steps":[]}`, false},
		"keys in any order": {KindWorkflow, `{"steps":[{"argv":["x"],"job":"a"}],"ordering":{"key":"order"},"name":"w"}`, true},
	}
	for name, c := range cases {
		doc, err := Load(c.kind, []byte(c.text))
		if (err == nil) != c.good {
			t.Errorf("%s: loaded %+v, error %v, want success %v", name, doc, err, c.good)
		}
	}
}

// TestProblemsStayReadable: neither the number of problems nor the size of what
// a person wrote makes the answer large.
func TestProblemsStayReadable(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", 10_000)
	text := "kind: queue\nname: " + long + "\n" + long + ": 1\n"
	for range 500 {
		text += "x: 1\n"
	}
	_, err := Parse("f.yaml", []byte(text))
	problems := problemsOf(t, err)
	if len(problems) != maxProblems+1 || !strings.HasPrefix(problems[maxProblems].Message, "402 more") {
		t.Errorf("%d problems, the last: %v", len(problems), problems[len(problems)-1])
	}
	for _, p := range problems[:3] {
		if size := len(p.String()); size > 600 {
			t.Errorf("a problem of %d bytes: %.200s", size, p)
		}
	}
}
