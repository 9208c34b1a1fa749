package labels

import (
	"testing"

	"kubelot.dev/bus/topic"
)

func TestLogDir(t *testing.T) {
	pod := topic.Ref{Namespace: "shop", Name: "web-1", UID: "1a-2b"}
	if got, ok := ParseLogDir(LogDir(pod)); !ok || got != pod || LogDir(pod) != "shop_web-1_1a-2b" {
		t.Errorf("%s is of %v, %v", LogDir(pod), got, ok)
	}
	for _, name := range []string{"", "shop_web", "shop_web_", "_web_uid", "shop__uid", "a_b_c_d"} {
		if got, ok := ParseLogDir(name); ok {
			t.Errorf("%q is of %v", name, got)
		}
	}
}

// A directory is taken for a pod's only if it is the directory that this pod has.
func FuzzParseLogDir(f *testing.F) {
	for _, name := range []string{"shop_web-1_1a-2b", "shop_web", "__", "a_b_c_d", "._._.", "a_b_/"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if pod, ok := ParseLogDir(name); ok && (LogDir(pod) != name || pod.Namespace == "" ||
			pod.Name == "" || pod.UID == "") {
			t.Errorf("%q is of %+v, which has %q", name, pod, LogDir(pod))
		}
	})
}
