package kernel

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// proc makes a /proc with the parameters' wanted values but for the changed ones.
func proc(t *testing.T, swaps string, changed map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"swaps": "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n" + swaps, "sys/vm/overcommit_memory": "1\n",
		"sys/vm/panic_on_oom": "0\n",
		"sys/kernel/panic":    "10\n", "sys/kernel/panic_on_oops": "1\n", "sys/kernel/keys/root_maxkeys": "1000000\n",
		"sys/kernel/keys/root_maxbytes": "25000000\n",
	}
	for name, value := range changed {
		files[name] = value
	}
	for name, value := range files {
		if value == "" {
			continue
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestPrepare(t *testing.T) {
	const partition = "/dev/sda2                               partition\t1000\t\t0\t\t-2\n"
	for name, c := range map[string]struct {
		swaps   string
		changed map[string]string
		options Options
		want    []string
		after   map[string]string
	}{
		"all is well": {options: Options{FailSwapOn: true, Protect: true}},
		"swap": {
			swaps: partition, options: Options{FailSwapOn: true},
			want: []string{"running with swap on is not supported, please disable swap or set --fail-swap-on flag to false"},
		},
		"swap that is allowed":  {swaps: partition},
		"a kernel without swap": {changed: map[string]string{"swaps": ""}, options: Options{FailSwapOn: true}},
		"other values": {changed: map[string]string{
			"sys/vm/overcommit_memory": "0\n",
			"sys/kernel/panic":         "0\n",
		}, after: map[string]string{"sys/vm/overcommit_memory": "1", "sys/kernel/panic": "10"}},
		"nonsense": {
			changed: map[string]string{"sys/kernel/panic": "many\n"},
			after:   map[string]string{"sys/kernel/panic": "many\n"},
		},
		"a parameter that is absent": {changed: map[string]string{"sys/kernel/keys/root_maxkeys": ""}},
		"protected, absent": {
			changed: map[string]string{"sys/kernel/keys/root_maxkeys": ""},
			options: Options{Protect: true}, want: []string{"kernel.keys.root_maxkeys"},
		},
		"protected": {
			changed: map[string]string{"sys/vm/overcommit_memory": "0\n", "sys/kernel/panic": "0\n"},
			options: Options{Protect: true},
			want: []string{
				"invalid kernel flag: vm.overcommit_memory, expected value: 1, actual value: 0",
				"kernel.panic, expected value: 10, actual value: 0",
			},
			after: map[string]string{"sys/vm/overcommit_memory": "0\n", "sys/kernel/panic": "0\n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := proc(t, c.swaps, c.changed)
			err := Prepare(dir, c.options, slog.New(slog.DiscardHandler))
			if (err != nil) != (len(c.want) > 0) {
				t.Fatalf("error %v; want %q", err, c.want)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
			for file, want := range c.after {
				if is, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(is) != want {
					t.Errorf("%s is %q (%v); want %q", file, is, err, want)
				}
			}
		})
	}
}

func TestMemoryQoSIsWarnedOf(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		release string
		want    string // "" is none
	}{
		"the gate is off":    {Options{}, "4.19.0", ""},
		"cgroup v1":          {Options{MemoryQoS: true}, "6.1.0", "cgroup v1"},
		"an old kernel":      {Options{MemoryQoS: true, CgroupV2: true}, "5.8.18-generic\n", "5.8.18-generic"},
		"an older kernel":    {Options{MemoryQoS: true, CgroupV2: true}, "4.19.0\n", "5.9 or later"},
		"the first that can": {Options{MemoryQoS: true, CgroupV2: true}, "5.9.0\n", ""},
		"a new kernel":       {Options{MemoryQoS: true, CgroupV2: true}, "6.18.44-x\n", ""},
		"nonsense":           {Options{MemoryQoS: true, CgroupV2: true}, "linux\n", "can't find out"},
		"nothing":            {Options{MemoryQoS: true, CgroupV2: true}, "", "can't find out"},
	} {
		t.Run(name, func(t *testing.T) {
			var text bytes.Buffer
			dir := proc(t, "", map[string]string{"sys/kernel/osrelease": c.release})
			if err := Prepare(dir, c.options, slog.New(slog.NewTextHandler(&text, nil))); err != nil {
				t.Fatal(err)
			}
			if warned := strings.Contains(text.String(), "MemoryQoS"); warned != (c.want != "") ||
				!strings.Contains(text.String(), c.want) {
				t.Errorf("logged is %q, want %q", text.String(), c.want)
			}
		})
	}
}
