package state

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/services/resource/internal/dra/claims"
	"kubelot.dev/services/resource/internal/dra/health"
)

// written is what a kubelet 1.36 writes.
const written = `{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":[` +
	`{"ClaimUID":"u1","ClaimName":"one","Namespace":"ns","PodUIDs":{"pod-a":{},"pod-b":{}},"DriverState":` +
	`{"d.example":{"Devices":[{"PoolName":"p","DeviceName":"x","ShareID":"s1","RequestNames":["gpu"],` +
	`"CDIDeviceIDs":["v/c=x"]},{"PoolName":"p","DeviceName":"y","ShareID":null,"RequestNames":null,` +
	`"CDIDeviceIDs":null}]},"e.example":{"Devices":null}}}]}`

func file(data string) string {
	return fmt.Sprintf(`{"Data":%s,"Checksum":%d}`, strconv.Quote(data), crc32.ChecksumIEEE([]byte(data)))
}

func book() claims.Book {
	name := types.NamespacedName{Namespace: "ns", Name: "one"}
	return claims.Book{name: {
		NamespacedName: name, UID: "u1", Pods: map[types.UID]bool{"pod-a": true, "pod-b": true},
		Drivers: map[string]*claims.Driver{
			"d.example": {Standing: claims.Unsure, Devices: []claims.Device{
				{Pool: "p", Name: "x", ShareID: "s1", Requests: []string{"gpu"}, CDI: []string{"v/c=x"}}, {Pool: "p", Name: "y"},
			}},
			"e.example": {Standing: claims.Unsure},
		},
	}}
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestClaims(t *testing.T) {
	dir := write(t, ClaimsFile, file(written))
	got, err := ReadClaims(dir)
	if err != nil || !reflect.DeepEqual(got, book()) {
		t.Fatalf("%+v, %v", got, err)
	}
	// A driver that has not answered is still asked by a later process. A kubelet doesn't read that.
	driver := got[types.NamespacedName{Namespace: "ns", Name: "one"}].Drivers["e.example"]
	driver.Unanswered = true
	if err := WriteClaims(dir, got); err != nil {
		t.Fatal(err)
	}
	if again, err := ReadClaims(dir); err != nil || !reflect.DeepEqual(again, got) {
		t.Errorf("%+v, %v", again, err)
	}
	driver.Unanswered = false
	// What is only of this process isn't written.
	for _, c := range got {
		c.Drivers["d.example"].Standing, c.Drivers["e.example"].Calling = claims.Prepared, true
	}
	if err := WriteClaims(dir, got); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, ClaimsFile)
	if text, err := os.ReadFile(path); err != nil || string(text) != file(written) {
		t.Errorf("%s, %v; want\n%s", text, err, file(written))
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestNoClaims(t *testing.T) {
	dir := t.TempDir()
	if got, err := ReadClaims(dir); err != nil || got == nil || len(got) != 0 {
		t.Errorf("without a file %v, %v", got, err)
	}
	if err := WriteClaims(dir, claims.Book{}); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadClaims(dir); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	// A kubelet without claims writes null.
	dir = write(t, ClaimsFile, file(`{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1",`+
		`"ClaimInfoStateList":null}`))
	if got, err := ReadClaims(dir); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	if err := WriteClaims(filepath.Join(dir, "none"), book()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a directory %v", err)
	}
}

func TestDamagedClaims(t *testing.T) {
	head := `{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":`
	for name, c := range map[string]struct{ text, want string }{
		"empty":    {"", "no JSON object with Data and Checksum: at byte 0"},
		"cut":      {file(written)[:100], "at byte 100"},
		"changed":  {strings.Replace(file(written), "one", "two", 1), "the checksum of its Data is"},
		"other":    {`[]`, "no JSON object"},
		"no data":  {`{"Checksum":0}`, "no list of claims"},
		"no list":  {file(`{"ClaimInfoStateList":7}`), "no list of claims"},
		"old":      {file(`{"kind":"DRACheckpoint","apiVersion":"v0"}`), `"DRACheckpoint" of "v0", want`},
		"nameless": {file(head + `[{"ClaimUID":"u","Namespace":"ns"}]}`), "its claim 0"},
		"uid":      {file(head + `[{"ClaimName":"u","Namespace":"ns"}]}`), "its claim 0"},
		"repeated": {file(head + `[` + two + `,` + two + `]}`), `it has the claim "ns/one" twice`},
		"no driver": {
			file(head + `[{"ClaimUID":"u","ClaimName":"o","Namespace":"n","DriverState":[]}]}`), "no list of claims",
		},
	} {
		dir := write(t, ClaimsFile, c.text)
		_, err := ReadClaims(dir)
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), filepath.Join(dir, ClaimsFile)) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

const two = `{"ClaimUID":"u1","ClaimName":"one","Namespace":"ns"}`

func TestSetAside(t *testing.T) {
	dir := write(t, ClaimsFile, "broken")
	aside, err := SetAside(dir, ClaimsFile)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(aside); err != nil || string(text) != "broken" || filepath.Dir(aside) != dir {
		t.Errorf("%s has %q, %v", aside, text, err)
	}
	if got, err := ReadClaims(dir); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := SetAside(dir, ClaimsFile); err == nil {
		t.Error("what isn't there was set aside")
	}
}

func TestHealth(t *testing.T) {
	dir := write(t, HealthFile, `{"d":{"Devices":{"p/x":{"PoolName":"p","DeviceName":"x","Health":"Healthy",`+
		`"LastUpdated":"2026-01-02T03:04:05.6Z","HealthCheckTimeout":0,"Message":""},"p/y":{"PoolName":"p","DeviceName":"y",`+
		`"Health":"strange","LastUpdated":"2026-01-02T03:04:05Z","HealthCheckTimeout":10000000000,"Message":"a\nb"}}}}`)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := health.Book{"d": {
		{Pool: "p", Device: "x"}: {
			Status: corev1.ResourceHealthStatusHealthy, At: at.Add(600 * time.Millisecond), Limit: health.DefaultLimit,
		},
		{Pool: "p", Device: "y"}: {
			Status: corev1.ResourceHealthStatusUnknown, Message: "a b", At: at, Limit: 10 * time.Second,
		},
	}}
	for range 2 {
		got, err := ReadHealth(dir)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, %v; want %+v", got, err, want)
		}
		if err := WriteHealth(dir, got); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := ReadHealth(t.TempDir()); err != nil || len(got) != 0 {
		t.Errorf("without a file %v, %v", got, err)
	}
	_, err := ReadHealth(write(t, HealthFile, `{"d":7}`))
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), HealthFile) {
		t.Errorf("%v", err)
	}
}
