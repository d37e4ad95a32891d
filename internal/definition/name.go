package definition

import (
	"errors"
	"fmt"
	"regexp"
)

const nameRule = "a name has 1 to 128 letters, digits, dots, underscores and hyphens, and starts with a letter or digit"

var (
	namePattern = regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9._-]{0,127}\z`)
	envPattern  = regexp.MustCompile(`\A[A-Za-z_][A-Za-z0-9_]*\z`)
	hashPattern = regexp.MustCompile(`\A[0-9a-f]{64}\z`)
)

// CheckName says what is wrong with the name of a definition, a job or an
// attachment (docs/concepts.md, "Words"); nil if nothing is. "-" stands for
// "none" where a name is expected and so can't be one.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("a name is missing")
	case namePattern.MatchString(name):
		return nil
	}
	return fmt.Errorf("%s is not a name", quote(name))
}
