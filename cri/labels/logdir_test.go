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
