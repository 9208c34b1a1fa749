package credentialprovider

import "testing"

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, repository string
		want                bool
	}{
		{"reg.example", "reg.example/a", true},
		{"reg.example/a", "reg.example/a/b", true},
		{"reg.example/b", "reg.example/a/b", false},
		{"reg.example/a/b/c", "reg.example/a/b", false},
		{"reg.example/te", "reg.example/team", true},
		{"*.example", "reg.example/a", true},
		{"*.example", "a.reg.example/a", false},
		{"*.*.example", "a.reg.example/a", true},
		{"*.dkr.ecr.*.amazonaws.com", "123.dkr.ecr.eu-1.amazonaws.com/a", true},
		{"*.dkr.ecr.*.amazonaws.com", "123.dkr.ecr.eu-1.amazonaws.com.cn/a", false},
		{"r*g.example", "reg.example/a", true},
		{"r?g.example", "reg.example/a", false}, // it begins a query
		{"*.example", "evil/example", false},
		{"*", "reg.example/a", false},
		{"*", "localhost/a", true},
		{"reg.example:5000", "reg.example:5000/a", true},
		{"reg.example", "reg.example:5000/a", false},
		{"reg.example:5000", "reg.example/a", false},
		{"reg.example:*", "reg.example:5000/a", false},
		{"reg.example/*", "reg.example/a", false},
		{"[.example", "reg.example/a", false},
		{"", "reg.example/a", false},
	} {
		if got := Matches(c.pattern, c.repository); got != c.want {
			t.Errorf("%s for %s: got %v", c.pattern, c.repository, got)
		}
	}
}
