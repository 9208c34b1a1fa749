package topic_test

import (
	"crypto/md5"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"kubelot.dev/bus/topic"
)

// uids are the n-th UID of a kind: a UUID of version 4, as the API server gives, or that of a static pod.
var uids = map[string]func(n int) string{
	"API server's": func(n int) string {
		r := rand.New(rand.NewPCG(uint64(n), 1))
		a, b := r.Uint64(), r.Uint64()
		return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>48&0x3fff|0x8000, b&0xffffffffffff)
	},
	"static": func(n int) string { return fmt.Sprintf("%x", md5.Sum(fmt.Appendf(nil, "/manifests/web-%d.yaml", n))) },
}

// Each rate has its share of the pods, within five standard deviations, and those of a lower rate are among them.
func TestSampling(t *testing.T) {
	const pods = 50_000
	for kind, uid := range uids {
		for _, rate := range []topic.Sampling{-1, 0, 1_000, 100_000, 250_000, 500_000, 750_000, 999_000, 1_000_000} {
			got := 0
			for n := range pods {
				has := rate.Has(uid(n))
				if has {
					got++
				}
				if has && !(rate + 500).Has(uid(n)) {
					t.Fatalf("%s pod %s is traced at the rate %d and not at a higher one", kind, uid(n), rate)
				}
			}
			share := max(float64(rate), 0) / 1_000_000
			want, off := share*pods, 5*math.Sqrt(share*(1-share)*pods)
			if math.Abs(float64(got)-want) > off {
				t.Errorf("%s pods, rate %d: %d of %d are traced, want %.0f ± %.0f", kind, rate, got, pods, want, off)
			}
		}
	}
}

func TestTraceID(t *testing.T) {
	for uid, want := range map[string]string{
		"4f7c1a52-0c5e-4a6e-9d0e-2f1f5b1c7a11": "4f7c1a520c5e4a6e9d0e2f1f5b1c7a11",
		"4F7C1A52-0C5E-4A6E-9D0E-2F1F5B1C7A11": "4f7c1a520c5e4a6e9d0e2f1f5b1c7a11",
		"3f1e5a9b0c5e4a6e9d0e2f1f5b1c7a11":     "3f1e5a9b0c5e4a6e9d0e2f1f5b1c7a11",
		// The first 16 bytes of SHA-256, also where the trace ID would not be a valid one.
		"my-own-uid":                       "8d3dcf0660f42d10ce934ed8b5ebd3ab",
		"00000000000000000000000000000000": "84e0c0eafaa95a34c293f278ac52e45c",
	} {
		if got := fmt.Sprintf("%x", topic.TraceID(uid)); got != want {
			t.Errorf("the trace of %s is %s, want %s", uid, got, want)
		}
	}
}
