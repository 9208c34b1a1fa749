package logquery

import (
	"net/url"
	"strings"
	"testing"
	"testing/fstest"
)

// FuzzQuery feeds any query: what is found sound can be nothing but the values of journalctl's options that are meant,
// or a file within the directory.
func FuzzQuery(f *testing.F) {
	for _, text := range []string{
		"", "query=kubelet&tailLines=5&boot=-1&pattern=a.*b", "query=/syslog", "query=--file=x",
		"query=..%2F..%2Fetc%2Fpasswd", "query=a%00b&pattern=%00",
		"query=a&sinceTime=2026-01-02T03:04:05Z&untilTime=9999-12-31T23:59:59%2B14:00", "query=sub%5C..%5C..%5Cx",
	} {
		f.Add(text)
	}
	files := fstest.MapFS{"syslog": {}, "sub/app.log": {}}
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		q, errs := Parse(values)
		if q == nil || len(errs) > 0 || len(q.Validate(files)) > 0 {
			return
		}
		if len(q.Files) > 0 {
			if name := q.File(); strings.Contains(name, "..") || strings.HasPrefix(name, "/") {
				t.Errorf("%q leads to the file %q", text, name)
			}
			return
		}
		for _, argument := range arguments(q.Options, q.Services) {
			if !strings.HasPrefix(argument, "--") || strings.ContainsRune(argument, 0) {
				t.Errorf("%q has journalctl called with %q", text, argument)
			}
		}
		for _, service := range q.Services {
			if strings.ContainsAny(service, "/\\\n \x00") {
				t.Errorf("%q is a service %q", text, service)
			}
		}
	})
}
