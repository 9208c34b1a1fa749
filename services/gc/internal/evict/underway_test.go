package evict

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kubelot.dev/bus/topic"
)

// ending is what podsync says of a pod that ends; words are the command's.
func ending(t *testing.T, words []string, args map[string]string) topic.Pod {
	t.Helper()
	deadline, grace := at(t, args["deadline"]), quantity(t, args["grace"])
	p := topic.Pod{
		Pod: candidate(t, words[0], "", args).Pod, Source: topic.SourceAPI, Lifecycle: topic.Terminating,
		GracePeriodSeconds: &grace, Deadline: &deadline, Released: slices.Contains(words, "released"),
	}
	if slices.Contains(words, "static") {
		p.Source = topic.SourceFile
	}
	for _, l := range []topic.Lifecycle{topic.Syncing, topic.Terminated} {
		if slices.Contains(words, string(l)) {
			p.Lifecycle = l
		}
	}
	return p
}

func (s *scenario) underway(t *testing.T, args map[string]string) string {
	t.Helper()
	most, err := strconv.ParseInt(args["most"], 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, b := range Underway(s.ending, int32(most), at(t, args["at"])) {
		fmt.Fprintf(&out, "%s until %s", b.Pod, b.Until.Sub(epoch))
		if b.Soft {
			out.WriteString(", soft")
		}
		out.WriteByte('\n')
	}
	if out.Len() == 0 {
		return "nothing\n"
	}
	return out.String()
}
