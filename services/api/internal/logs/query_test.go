package logs

import (
	"errors"
	"net/url"
	"testing"
	"time"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestParseQuery(t *testing.T) {
	plain := Query{Options: Options{Tail: -1, Limit: -1, Stdout: true, Stderr: true}}
	with := func(change func(*Query)) Query {
		q := plain
		change(&q)
		return q
	}
	for text, c := range map[string]struct {
		want Query
		err  error
	}{
		"":                                  {want: plain},
		"follow=true":                       {want: with(func(q *Query) { q.Follow = true })},
		"follow":                            {want: with(func(q *Query) { q.Follow = true })},
		"follow=0&previous=1":               {want: with(func(q *Query) { q.Previous = true })},
		"tail=7":                            {want: with(func(q *Query) { q.Tail = 7 })},
		"tail=all&tailLines=7":              {want: plain},
		"tailLines=0":                       {want: with(func(q *Query) { q.Tail = 0 })},
		"limitBytes=5":                      {want: with(func(q *Query) { q.Limit = 5 })},
		"sinceSeconds=3600":                 {want: with(func(q *Query) { q.Since = now.Add(-time.Hour) })},
		"timestamps=yes":                    {want: with(func(q *Query) { q.Timestamps = true })},
		"stream=Stdout":                     {want: with(func(q *Query) { q.Stderr = false })},
		"stream=Stderr":                     {want: with(func(q *Query) { q.Stdout = false })},
		"stream=stdout":                     {err: ErrInvalid},
		"stream=Stdout&tail=1":              {err: ErrInvalid},
		"tailLines=-1":                      {err: ErrInvalid},
		"limitBytes=0":                      {err: ErrInvalid},
		"sinceSeconds=0":                    {err: ErrInvalid},
		"tailLines=many":                    {err: ErrDecode},
		"sinceTime=yesterday":               {err: ErrDecode},
		"sinceSeconds=99999999999999999999": {err: ErrDecode},
		"sinceTime=2026-01-01T00:00:00Z&sinceSeconds=1": {err: ErrInvalid},
	} {
		values, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseQuery(values, now); !errors.Is(err, c.err) || err == nil && got != c.want {
			t.Errorf("%s: %+v, %v; want %+v, %v", text, got, err, c.want, c.err)
		}
	}
}

func FuzzParseQuery(f *testing.F) {
	f.Add("follow=true&tailLines=5&sinceTime=2026-01-01T00:00:00Z")
	f.Add("sinceSeconds=9223372036854775807&limitBytes=1&stream=All")
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		q, err := ParseQuery(values, now)
		if err == nil && (q.Tail < -1 || q.Limit == 0 || !q.Stdout && !q.Stderr || q.Since.After(now) &&
			values.Get("sinceTime") == "") {
			t.Errorf("%s became %+v", text, q)
		}
	})
}
