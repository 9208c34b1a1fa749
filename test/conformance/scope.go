package conformance

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// Scope is which specs of a suite are run.
type Scope struct {
	Suite Suite
	Quick bool
	Focus string // regular expression; empty is everything in scope
}

// Alone are these specs of the suite and no others, by their full names.
func Alone(suite Suite, specs []string) Scope {
	var names []string
	for _, spec := range specs {
		names = append(names, regexp.QuoteMeta(spec))
	}
	return Scope{Suite: suite, Focus: "(" + strings.Join(names, "|") + ")$"}
}

// TimeLimit is how long one run of the specs may take, those included that are run again alone.
func (s Scope) TimeLimit() time.Duration {
	if s.Quick {
		return s.Suite.quickLimit
	}
	return s.Suite.fullLimit
}

// Expected are those of the listed specs that must be run. A focus says itself what is to run.
func (s Scope) Expected(listed []string) []string {
	if s.Focus != "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(listed), func(spec string) bool {
		slow := matches(s.Suite.slow, spec) || len(s.Suite.brief) > 0 && !matches(s.Suite.brief, spec)
		return matches(s.Suite.lacks, spec) || s.Quick && slow
	})
}

func matches(expressions []string, spec string) bool {
	return len(expressions) > 0 && regexp.MustCompile(strings.Join(expressions, "|")).MatchString(spec)
}

// Flags are ginkgo's flags that choose the specs.
func (s Scope) Flags() []string {
	focus, skip := strings.Join(s.Suite.scope, "|"), slices.Concat(s.Suite.never, s.Suite.lacks)
	if s.Quick {
		skip = append(skip, s.Suite.slow...)
		if len(s.Suite.brief) > 0 {
			focus = strings.Join(s.Suite.brief, "|")
		}
	}
	if s.Focus != "" {
		// Ginkgo takes several focuses as alternatives, and Go's expressions know no "and": the user's stands alone.
		focus = s.Focus
	}
	flags := []string{"--label-filter=" + s.Suite.labels, "--focus=" + focus}
	if len(skip) > 0 {
		flags = append(flags, "--skip="+strings.Join(skip, "|"))
	}
	return flags
}
