package conformance

import (
	"fmt"
	"regexp"
	"strings"
)

// Limit is why specs can't pass on this machine, or why kubelot doesn't pass them.
type Limit struct {
	Specs  *regexp.Regexp
	Reason string
}

func parseLimits(text string) ([]Limit, error) {
	var all []Limit
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		expression, reason, ok := strings.Cut(line, " -- ")
		if !ok || strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("line %d: %q has no reason; write: expression -- reason", number, line)
		}
		specs, err := regexp.Compile(strings.TrimSpace(expression))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		all = append(all, Limit{Specs: specs, Reason: strings.TrimSpace(reason)})
	}
	return all, nil
}

// reason is why the spec can't pass here, or empty.
func reason(limits []Limit, spec string) string {
	for _, limit := range limits {
		if limit.Specs.MatchString(spec) {
			return limit.Reason
		}
	}
	return ""
}
