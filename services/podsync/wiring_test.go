package podsync

import (
	"testing"

	"kubelot.dev/daemon/config"
)

func TestPullsAreSerialWhereTheConfigurationSaysSo(t *testing.T) {
	yes, no, three := true, false, int32(3)
	for name, c := range map[string]struct {
		serialize *bool
		parallel  *int32
		want      int // 0 is the puller's own default
	}{
		"unset":               {nil, nil, 0},
		"serialize":           {&yes, nil, 1},
		"not serialize":       {&no, nil, 0},
		"a limit":             {&no, &three, 3},
		"a limit and nothing": {nil, &three, 3},
	} {
		cfg := &config.Config{}
		cfg.Kubelet.SerializeImagePulls, cfg.Kubelet.MaxParallelImagePulls = c.serialize, c.parallel
		if got := imageConfig(cfg).MaxParallel; got != c.want {
			t.Errorf("%s: %d pulls at a time, want %d", name, got, c.want)
		}
	}
}
