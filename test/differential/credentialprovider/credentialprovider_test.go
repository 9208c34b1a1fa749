// Package credentialprovider compares for which images kubelot and the kubelet ask credential providers.
package credentialprovider

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"

	upstream "k8s.io/kubernetes/pkg/credentialprovider"

	"kubelot.dev/kube/credentialprovider"
)

func compare(t *testing.T, pattern, repository string) bool {
	t.Helper()
	want, _ := upstream.URLsMatchStr(pattern, repository)
	if got := credentialprovider.Matches(pattern, repository); got != want {
		t.Errorf("%q for %q: kubelot says %v, the kubelet %v", pattern, repository, got, want)
	}
	return want
}

func TestMatches(t *testing.T) {
	patterns := []string{
		"reg.example", "reg.example/", "reg.example/team", "reg.example/te", "reg.example:5000", "reg.example:5000/team",
		"reg.example:*", "reg.example/*", "*.example", "*.*", "*", "*.*.example", "r?g.example", "r*g.example",
		"[r]eg.example",
		"[.example", "", ".", "/", ":5000", "reg.example:5000:1", "docker.io", "index.docker.io", "https://reg.example",
		"reg.example/team?x", "reg.example/team#x", "reg.example/%74eam", "%zz", "REG.example", "*.dkr.ecr.*.amazonaws.com",
		"[::1]:5000", "\\reg.example", "user@reg.example", "*/team",
	}
	repositories := []string{
		"reg.example/team/app", "reg.example/other", "reg.example:5000/team/app", "a.reg.example/team", "localhost/app",
		"localhost:5000/app", "docker.io/library/busybox", "1.dkr.ecr.eu-west-1.amazonaws.com/app", "[::1]:5000/app",
		"evil/example",
	}
	matched := 0
	for _, p := range patterns {
		for _, r := range repositories {
			if compare(t, p, r) {
				matched++
			}
		}
	}
	if matched < 20 {
		t.Errorf("only %d pairs match", matched)
	}
}

// Patterns and images drawn by chance from few parts.
func TestRandomMatches(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	one := func(of ...string) string { return of[r.Intn(len(of))] }
	host := func(parts ...string) string {
		labels := make([]string, 1+r.Intn(3))
		for i := range labels {
			labels[i] = one(parts...)
		}
		return strings.Join(labels, ".")
	}
	matched := 0
	for range 20000 {
		pattern := fmt.Sprint(host("a", "b", "*", "a*", "?", "[ab]", "[", "\\a"), one("", "", ":1", ":2", ":*"),
			one("", "", "/", "/a", "/a/", "/a/b", "/*"))
		if compare(t, pattern, fmt.Sprint(host("a", "b", "ab"), one("", "", ":1", ":2"), one("/a", "/a/b", "/b", "/ab/c"))) {
			matched++
		}
	}
	if matched < 100 {
		t.Errorf("only %d pairs match", matched)
	}
}
