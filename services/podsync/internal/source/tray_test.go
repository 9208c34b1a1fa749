package source

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/source/manifest"
)

// desk is a manifest directory with a tray that reads it.
type desk struct {
	*testing.T
	dir  string
	good lastGood
	tray *tray
	now  time.Time
	act  activity
	told []Problem
}

func newDesk(t *testing.T) *desk {
	d := &desk{T: t, dir: t.TempDir(), good: lastGood(filepath.Join(t.TempDir(), "good")), now: time.Now().Add(time.Hour)}
	d.restart()
	return d
}

// restart begins with a tray that has read nothing yet.
func (d *desk) restart() {
	d.tray = newTray(d.dir, "node-1", d.good,
		newProblems(topic.SourceFile, func(p Problem) { d.told = append(d.told, p) }))
	d.act = activity{writing: map[string]bool{}, closed: map[string]bool{}}
}

func yaml(name, image string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: c, image: %q}]}\n",
		name, image)
}

func (d *desk) write(name, content string) string {
	d.Helper()
	p := filepath.Join(d.dir, name)
	if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
		d.Fatal(err)
	}
	return p
}

// scan answers with "pod:image" of each pod.
func (d *desk) scan() (string, time.Duration) {
	d.Helper()
	pods, again, err := d.tray.scan(d.now, d.act)
	if err != nil {
		d.Fatal(err)
	}
	var names []string
	for _, p := range pods {
		names = append(names, strings.TrimSuffix(p.Name, "-node-1")+":"+p.Spec.Containers[0].Image)
	}
	return strings.Join(names, " "), again
}

func (d *desk) want(pods string, problems ...string) {
	d.Helper()
	if got, _ := d.scan(); got != pods {
		d.Errorf("pods are %q, want %q", got, pods)
	}
	var told []string
	for _, p := range d.told {
		told = append(told, fmt.Sprintf("%s solved=%v %s", filepath.Base(p.Where), p.Solved, p.Message))
	}
	if len(told) != len(problems) {
		d.Errorf("told %q, want %q", told, problems)
	}
	for i := range min(len(told), len(problems)) {
		if !strings.Contains(told[i], problems[i]) {
			d.Errorf("told %q, want %q", told[i], problems[i])
		}
	}
	d.told = nil
}

func TestTrayFollowsTheFiles(t *testing.T) {
	d := newDesk(t)
	d.want("")
	d.write("b.yaml", yaml("b", "b:1"))
	d.write("a.json",
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"a:1"}]}}`)
	d.write(".hidden.yaml", yaml("hidden", "h:1"))
	d.want("a:a:1 b:b:1")
	before, _, _ := d.tray.scan(d.now, d.act)
	after, _, _ := d.tray.scan(d.now, d.act)
	if !slices.Equal(before, after) {
		t.Error("unchanged files gave new pods")
	}
	d.write("b.yaml", yaml("b", "b:2"))
	d.want("a:a:1 b:b:2")
	os.Remove(filepath.Join(d.dir, "a.json"))
	d.want("b:b:2")
}

func TestTrayTellsOncePerChangeAndKeepsTheLastGoodPod(t *testing.T) {
	d := newDesk(t)
	d.write("good.yaml", yaml("good", "g:1"))
	d.write("web.yaml", yaml("web", "w:1"))
	d.want("good:g:1 web:w:1")
	d.write("web.yaml", "kind: Pod\n: nonsense")
	d.want("good:g:1 web:w:1", "web.yaml solved=false")
	d.want("good:g:1 web:w:1")
	d.write("web.yaml", yaml("web", ""))
	d.want("good:g:1 web:w:1", "spec.containers[0].image")
	d.write("web.yaml", yaml("web", "w:2"))
	d.want("good:g:1 web:w:2", "web.yaml solved=true")
	d.write("web.yaml", "")
	d.want("good:g:1 web:w:2", "it is empty")
	os.Remove(filepath.Join(d.dir, "web.yaml"))
	d.want("good:g:1", "web.yaml solved=true")
}

func TestTrayKeepsTheLastGoodPodOverARestart(t *testing.T) {
	d := newDesk(t)
	web := d.write("web.yaml", yaml("web", "w:1"))
	gone := d.write("gone.yaml", yaml("gone", "g:1"))
	d.want("gone:g:1 web:w:1")
	before := d.tray.files[web].pod
	d.write("web.yaml", yaml("web", "w:1")+"\t: typo")
	os.Remove(gone)
	d.restart()
	d.want("web:w:1", "web.yaml solved=false")
	if uid := d.tray.files[web].pod.UID; uid != before.UID {
		t.Errorf("the pod's UID is %s after a restart, and was %s", uid, before.UID)
	}
	d.write("gone.yaml", "broken")
	d.want("web:w:1", "gone.yaml solved=false")
	d.restart()
	d.want("web:w:1", "gone.yaml solved=false", "web.yaml solved=false")
	d.write("web.yaml", yaml("web", "w:2"))
	d.want("web:w:2", "web.yaml solved=true")
	d.write("web.yaml", "broken")
	d.want("web:w:2", "web.yaml solved=false")
	d.restart()
	d.want("web:w:2", "gone.yaml solved=false", "web.yaml solved=false")
	os.Remove(web)
	d.want("", "web.yaml solved=true")
	d.write("web.yaml", "broken")
	d.restart()
	d.want("", "gone.yaml solved=false", "web.yaml solved=false")
}

func TestTrayOddEntries(t *testing.T) {
	d := newDesk(t)
	d.write("good.yaml", yaml("good", "g:1"))
	if err := os.Mkdir(filepath.Join(d.dir, "dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(d.dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/nowhere", filepath.Join(d.dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	big := d.write("huge.yaml", "")
	if err := os.Truncate(big, manifest.MaxBytes+1); err != nil {
		t.Fatal(err)
	}
	d.write("typo.yaml", strings.Replace(yaml("typo", "t:1"), "spec: {", "spec: {hostNetwrok: true, ", 1))
	d.want("good:g:1 typo:t:1", "dir solved=false it is a directory", "fifo solved=false it is neither",
		"huge.yaml solved=false it is larger", "typo.yaml solved=false unknown field")
	d.want("good:g:1 typo:t:1")
}

func TestTrayDuplicates(t *testing.T) {
	d := newDesk(t)
	d.write("web.yaml", yaml("web", "w:1"))
	d.want("web:w:1")
	// A copy that sorts first doesn't push out the pod that runs.
	d.write("a-copy.yaml", yaml("web", "w:2"))
	d.want("web:w:1", "a-copy.yaml solved=false the pod default/web-node-1 has the same name")
	d.want("web:w:1")
	os.Remove(filepath.Join(d.dir, "web.yaml"))
	d.want("web:w:2", "a-copy.yaml solved=true")
}

func TestTrayWaitsForWriters(t *testing.T) {
	d := newDesk(t)
	p := d.write("web.yaml", yaml("web", "w:1"))
	info, _ := os.Stat(p)
	d.now = info.ModTime().Add(rest / 4)
	if pods, again := d.scan(); pods != "" || again != rest-rest/4 {
		t.Errorf("a file that was just written: %q, again in %s", pods, again)
	}
	d.act.closed[p] = true
	if pods, again := d.scan(); pods != "web:w:1" || again != 0 {
		t.Errorf("a file that was closed: %q, again in %s", pods, again)
	}
	clear(d.act.closed)
	d.act.writing[p] = true
	d.write("web.yaml", yaml("web", "w:2"))
	info, _ = os.Stat(p)
	d.now = info.ModTime().Add(2 * rest)
	if pods, again := d.scan(); pods != "web:w:1" || again != patience {
		t.Errorf("a file that is being written: %q, again in %s", pods, again)
	}
	delete(d.act.writing, p)
	d.want("web:w:2")
	d.act.writing[p] = true
	d.write("web.yaml", yaml("web", "w:3"))
	d.now = d.now.Add(time.Hour)
	d.want("web:w:3")
}

func TestTraySingleFile(t *testing.T) {
	d := newDesk(t)
	p := d.write("web.yaml", yaml("web", "w:1"))
	d.write("other.yaml", yaml("other", "o:1"))
	d.tray.path = p
	d.want("web:w:1")
	os.Remove(p)
	d.want("", "it does not exist")
	d.want("")
	d.write("web.yaml", yaml("web", "w:2"))
	d.want("web:w:2", "solved=true")
}
