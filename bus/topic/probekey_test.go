package topic

import "testing"

func FuzzParseProbeKey(f *testing.F) {
	for _, seed := range []string{"u1.app.readiness", "u1.app.liveness", "u1.app.other", "u1.app", "..", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		k, ok := ParseProbeKey(text)
		if ok && k.String() != text {
			t.Errorf("%q became %q", text, k)
		}
		if again, same := ParseProbeKey(k.String()); ok && (!same || again != k) {
			t.Errorf("%+v became %+v", k, again)
		}
	})
}
