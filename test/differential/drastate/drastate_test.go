package drastate

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra/state"
)

const (
	claimsName = "dra_manager_state"
	healthName = "dra_health_state"
	// lives is how many pairs of files are compared.
	lives = 200
)

// words are names that a file must not be broken by.
var words = []string{
	"a", "gpu-0", "d.example.com", `quo"te`, `back\slash`, "<html>&amp;", "line\nbreak",
	"\u2028", "ünï", "\x7f", "{}", "",
}

func word(r *rand.Rand) string { return words[r.Intn(len(words))] }

func list(r *rand.Rand) []string {
	var all []string
	for range r.Intn(4) {
		all = append(all, word(r))
	}
	return all
}

// claims are always the same for a seed.
func claims(r *rand.Rand) state.ClaimInfoStateList {
	all := state.ClaimInfoStateList{}
	for i := range r.Intn(6) {
		c := state.ClaimInfoState{
			ClaimUID: types.UID(fmt.Sprintf("%x", r.Int63())), ClaimName: fmt.Sprint("claim-", i, word(r)),
			Namespace: fmt.Sprint("ns-", r.Intn(2)), PodUIDs: sets.New[string](), DriverState: map[string]state.DriverState{},
		}
		for range r.Intn(3) {
			c.PodUIDs.Insert(fmt.Sprintf("%x", r.Int63()))
		}
		for range r.Intn(3) {
			var d state.DriverState
			for range r.Intn(3) {
				device := state.Device{PoolName: word(r), DeviceName: word(r), RequestNames: list(r), CDIDeviceIDs: list(r)}
				if r.Intn(2) == 0 {
					share := types.UID(fmt.Sprintf("%x", r.Int63()))
					device.ShareID = &share
				}
				d.Devices = append(d.Devices, device)
			}
			c.DriverState[word(r)+".example"] = d
		}
		all = append(all, c)
	}
	return all
}

func devices(r *rand.Rand) state.DevicesHealthMap {
	all := state.DevicesHealthMap{}
	for i := range r.Intn(3) {
		d := state.DriverHealthState{Devices: map[string]state.DeviceHealth{}}
		for j := range 1 + r.Intn(4) {
			e := state.DeviceHealth{
				PoolName: fmt.Sprint("pool", i), DeviceName: fmt.Sprint("device", j),
				Health: []state.DeviceHealthStatus{
					state.DeviceHealthStatusHealthy, state.DeviceHealthStatusUnhealthy, state.DeviceHealthStatusUnknown,
				}[r.Intn(3)],
				LastUpdated:        time.Unix(1_700_000_000+r.Int63n(1e8), r.Int63n(1e9)).UTC(),
				HealthCheckTimeout: time.Duration(1+r.Intn(1000)) * time.Second,
				Message:            strings.Repeat("hot & <wet> ", r.Intn(3)),
			}
			d.Devices[e.PoolName+"/"+e.DeviceName] = e
		}
		all[fmt.Sprint("driver", i)] = d
	}
	return all
}

func TestBothReadTheOthers(t *testing.T) {
	root := t.TempDir()
	for seed := range lives {
		r := rand.New(rand.NewSource(int64(seed)))
		dir := filepath.Join(root, "kubelet", fmt.Sprint(seed))
		health, err := json.Marshal(devices(r))
		if err := errors.Join(err, os.MkdirAll(dir, 0o700),
			os.WriteFile(filepath.Join(dir, healthName), health, 0o600)); err != nil {
			t.Fatal(err)
		}
		checkpoint, err := state.NewCheckpoint(claims(r))
		if err != nil {
			t.Fatal(err)
		}
		if err := checkpointer(t, dir).Store(checkpoint); err != nil {
			t.Fatal(err)
		}
	}
	rewrite(t, root)
	for seed := range lives {
		r := rand.New(rand.NewSource(int64(seed)))
		wantHealth, want := devices(r), claims(r)
		dir := filepath.Join(root, "kubelot", fmt.Sprint(seed))
		checkpoint, err := checkpointer(t, dir).GetOrCreate()
		if err != nil {
			t.Fatalf("life %d: the kubelet can't read what kubelot has written: %v", seed, err)
		}
		got, err := checkpoint.GetClaimInfoStateList()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(sorted(want), sorted(got), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("life %d: claims (- kubelet, + kubelot):\n%s", seed, diff)
		}
		data, err := os.ReadFile(filepath.Join(dir, healthName))
		if err != nil {
			t.Fatal(err)
		}
		gotHealth := state.DevicesHealthMap{}
		if err := json.Unmarshal(data, &gotHealth); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wantHealth, gotHealth, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("life %d: health (- kubelet, + kubelot):\n%s", seed, diff)
		}
	}
}

func checkpointer(t *testing.T, dir string) state.Checkpointer {
	t.Helper()
	c, err := state.NewCheckpointer(dir, claimsName)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func sorted(all state.ClaimInfoStateList) state.ClaimInfoStateList {
	slices.SortFunc(all, func(x, y state.ClaimInfoState) int {
		return strings.Compare(x.Namespace+"/"+x.ClaimName, y.Namespace+"/"+y.ClaimName)
	})
	return all
}

// rewrite has the daemon's code read the files below kubelet and write them below kubelot.
func rewrite(t *testing.T, root string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-run", "^TestRewrite$", "./internal/dra/state")
	cmd.Dir = filepath.Join("..", "..", "..", "services", "resource")
	cmd.Env = append(os.Environ(), "GOWORK=off", "KUBELOT_DRASTATE="+root)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
}
