package kubeletconfig

import (
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/kubernetes/cmd/kubelet/app/options"

	"kubelot.dev/daemon/config"
)

// kubeadm and administrators give the kubelet's flags to kubelot's daemons. One that isn't known would keep all of them
// from starting. What it does is said elsewhere: here each of them must be there.
func TestEveryFlagOfTheKubeletIsKnown(t *testing.T) {
	kubelet := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	options.NewKubeletFlags().AddFlags(kubelet)
	defaults, err := options.NewKubeletConfiguration()
	if err != nil {
		t.Fatal(err)
	}
	options.AddKubeletConfigFlags(kubelet, defaults)
	options.AddGlobalFlags(kubelet)
	// Both have it from cobra.
	known := map[string]string{"help": "true", "version": "true"}
	kubelot := pflag.NewFlagSet("kubelot", pflag.ContinueOnError)
	(&config.Flags{}).Register(kubelot)
	kubelot.VisitAll(func(f *pflag.Flag) { known[f.Name] = f.NoOptDefVal })
	count := 0
	kubelet.VisitAll(func(f *pflag.Flag) {
		count++
		alone, ok := known[f.Name]
		switch {
		case !ok:
			t.Errorf("kubelot doesn't know --%s (%s)", f.Name, f.Usage)
		case (alone == "") != (f.NoOptDefVal == ""):
			t.Errorf("--%s stands alone with one agent and takes the next word with the other", f.Name)
		}
	})
	if count < 100 {
		t.Errorf("the kubelet has %d flags only: the test looks in the wrong place", count)
	}
}
