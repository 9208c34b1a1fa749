package gather

import (
	"bytes"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// Two daemons serve the same text. Their page has every series of both, each from its daemon, and can be read again.
func FuzzGather(f *testing.F) {
	for _, text := range []string{
		"", "a 1\n", "# TYPE a counter\na 1\n", "# HELP a b\n# TYPE a gauge\na{x=\"y\"} NaN\n",
		"a{daemon=\"probe\"} 1\na 2\n",
		"# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n",
		"# TYPE s summary\ns{quantile=\"0.5\"} 1\ns_sum 1\ns_count 1\n", "a{x=\"\\\\\\\"\\n\"} 1 1000\n",
		"{\"a b\"} 1\n", "a 1\na 1\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var answers []answer
		for _, daemon := range []string{"pleg", "probe"} {
			families, err := parse(strings.NewReader(text))
			if err != nil {
				return
			}
			answers = append(answers, answer{daemon: daemon, families: families})
		}
		series := count(answers[0].families) + count(answers[1].families)
		merged := merge(answers, map[string]bool{})
		if got := count(merged); got != series {
			t.Errorf("%d series became %d", series, got)
		}
		var page bytes.Buffer
		encoder := expfmt.NewEncoder(&page, expfmt.NewFormat(expfmt.TypeTextPlain))
		for name, family := range merged {
			for _, m := range family.Metric {
				if !told(m) {
					t.Errorf("a series of %s doesn't say which daemon it is from", name)
				}
			}
			if len(family.Metric) == 0 {
				continue
			}
			if err := encoder.Encode(family); err != nil {
				t.Errorf("encode %s: %v", name, err)
			}
		}
		if _, err := parse(&page); err != nil {
			t.Errorf("the page can't be read again: %v", err)
		}
	})
}

func count(families map[string]*dto.MetricFamily) (n int) {
	for _, family := range families {
		n += len(family.Metric)
	}
	return n
}
