package ui

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"kubelot.dev/test/testbed/images"
)

// The address opens the page in one browser, and the page ends with the command.
func TestThePageOpensOnce(t *testing.T) {
	c := serve(t, bed.Node.RunDir())
	plain, _, _ := strings.Cut(c.url, "?")
	b := browse(t, c, 1280, 800)
	b.shows("daemons are healthy. Messages on the bus")
	inside := get[string](b, `location.href.replace(/#.*/, "")`)
	if strings.Contains(get[string](b, `location.href`), "token") || get[string](b, `document.cookie`) != "" {
		t.Error("the page's address has the token, or a script can read the cookie")
	}
	for name, address := range map[string]string{
		"again": c.url, "without the token": plain, "without the cookie": inside, "the stream": inside + "events",
	} {
		answer, err := http.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		said, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != http.StatusForbidden || err != nil || !strings.Contains(string(said), "kubelot ui") {
			t.Errorf("%s: %s %s %v", name, answer.Status, said, err)
		}
	}
	if err := c.end(); err != nil {
		t.Errorf("the command ended with %v", err)
	}
	b.shows("This page has ended")
}

// slow is a pod that shows all stages of a start: $IMAGE is pulled, and its probe succeeds after a while.
const slow = `apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: shop}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: migrate, image: "busybox:1.36", command: [sh, -c, "sleep 0.4"]}
  containers:
  - name: app
    image: %[2]q
    command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done"]
    volumeMounts: [{name: cache, mountPath: /cache}]
    readinessProbe: {exec: {command: [sh, -c, "[ -e /cache/warm ] || { touch /cache/warm; false; }"]}, periodSeconds: 1}
  volumes: [{name: cache, emptyDir: {}}]
`

// manifest writes a static pod by renaming; it goes with the test.
func manifest(t *testing.T, name, content string) {
	t.Helper()
	path, draft := filepath.Join(bed.Node.ManifestDir, name+".yaml"), filepath.Join(bed.Node.ManifestDir, "."+name)
	if err := os.WriteFile(draft, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(draft, path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) })
}

// A pod's start is a waterfall, and a pod that waits says why.
func TestAPodsStart(t *testing.T) {
	img, err := images.Variant(bed.Busybox, "docker.io/shop/web:1", "web")
	if err != nil {
		t.Fatal(err)
	}
	ref, err := bed.Registry.Push(t.Context(), img)
	if err != nil {
		t.Fatal(err)
	}
	b := browse(t, serve(t, bed.Node.RunDir()), 1440, 900)
	manifest(t, "web", fmt.Sprintf(slow, "web", ref))
	manifest(t, "absent", fmt.Sprintf(slow, "absent", bed.Registry.Addr+"/shop/absent:1"))
	b.goTo("#/pods")
	line := `[...document.querySelectorAll("#list li")].find((e) => e.innerText.includes(%q))`
	web, absent := fmt.Sprintf(line, "web-"), fmt.Sprintf(line, "absent-")
	b.until("the pod that becomes ready", fmt.Sprintf(`%s?.innerText.includes("ready in")`, web))
	b.do(chromedp.Evaluate(web+".click()", nil))
	b.shows("Ready after")
	stages := get[[]string](b, `[...document.querySelectorAll(".waterfall tbody th")].map((e) => e.innerText)`)
	for _, stage := range []string{"volumes", "sandbox", "image app", "create app", "start app", "probe", "Ready"} {
		if !strings.Contains(strings.Join(stages, "\n"), stage) {
			t.Errorf("the waterfall has %q, and nothing of %q", stages, stage)
		}
	}
	// The parts come one after the other: the image before the container's start, its probe after it.
	order := get[[]float64](b, `["pull", "start", "probe"].map((s) => [...document.querySelectorAll(".bar." + s)].at(-1))
		.map((e) => e.getBoundingClientRect().left)`)
	if order[0] >= order[1] || order[1] >= order[2] {
		t.Errorf("image, start and probe begin at %v", order)
	}
	b.inEachTheme(t, func(theme string) {
		b.readable("a pod's start, " + theme)
		b.picture("start-" + theme)
	})

	b.until("the pod that waits", fmt.Sprintf(`/doesn't exist/.test(%s?.innerText)`, absent))
	b.do(chromedp.Evaluate(absent+".click()", nil))
	b.until("why it waits", `document.querySelector(".why")?.innerText.includes("What to do")`)
	b.inEachTheme(t, func(theme string) {
		b.readable("a pod that waits, " + theme)
		b.picture("why-" + theme)
	})
	b.goTo("#/crew")
	b.until("arrows", `document.querySelectorAll(".arrow").length > 0`)
	b.inEachTheme(t, func(theme string) {
		b.readable("the crew, " + theme)
		b.picture("crew-" + theme)
	})
	b.goTo("#/day")
	b.shows("The bus's history begins")
	b.readable("the day")
	b.picture("day-light")
}

// Arrows move while messages flow, and not otherwise.
func TestArrowsMove(t *testing.T) {
	crew := play(t)
	crew.crew()
	crew.pods(1)
	b := browse(t, serve(t, crew.runDir), 1280, 800)
	b.until("no arrows before there are messages", `document.querySelectorAll(".node").length > 9 &&
		document.querySelectorAll(".arrow").length === 0`)
	quiet := crew.chatter()
	b.until("arrows", `document.querySelectorAll(".arrow").length > 3`)
	b.until("messages of pleg on five ways", `document.querySelectorAll('.edge.flows[data-key^="pleg>"]').length >= 5`)
	if n := get[int](b, `document.querySelectorAll('.edge.flows[data-key^="volume>"]').length`); n > 0 {
		t.Errorf("messages of volume flow on %d ways, and it has said nothing", n)
	}
	b.do(chromedp.Evaluate(`{
		const places = new Map();
		const step = () => {
			for (const arrow of document.querySelectorAll(".arrow")) {
				const { x, y } = arrow.getBoundingClientRect();
				const before = places.get(arrow) ?? { x, y };
				places.set(arrow, before);
				if (Math.hypot(x - before.x, y - before.y) > 2) window.arrowMoved = true;
			}
			if (!window.arrowMoved) requestAnimationFrame(step);
		};
		step();
	}`, nil))
	b.until("an arrow to move", `window.arrowMoved === true`)
	b.do(chromedp.Click("#motion", chromedp.ByQuery))
	b.until("the arrows to stop", `document.getAnimations().every((a) => a.id !== "arrow" || a.playState === "paused")`)
	b.do(chromedp.Click("#motion", chromedp.ByQuery))
	quiet()
	b.until("no arrows when nothing is said", `document.querySelectorAll(".arrow").length === 0`)

	b.prefer("light", "reduce")
	defer crew.chatter()()
	b.until("arrows that stand", `document.querySelectorAll(".arrow").length > 3`)
	if n := get[int](b, `document.getAnimations().filter((a) => a.id === "arrow").length`); n > 0 {
		t.Errorf("%d arrows move for who wants no motion", n)
	}
}

// Everything is found and opened by the keyboard alone.
func TestKeyboard(t *testing.T) {
	crew := play(t)
	crew.crew()
	crew.pods(12)
	b := browse(t, serve(t, crew.runDir), 1280, 800)
	b.until("the pods", `document.querySelector("#node").innerText.includes("node-1") &&
		document.querySelector("#pods-badge").textContent.startsWith("2")`)
	for _, c := range []struct{ query, view, shown string }{
		{"bill", "#/pods/", "billing-0"},
		{"ple", "#/crew/daemon/pleg", "pleg"},
		{"pod.upd", "#/crew/topic/pod.update", "admitted"},
	} {
		b.keys("/")
		b.until("the focus in the search", `document.activeElement.id === "search"`)
		b.keys(strings.Split(c.query, "")...)
		b.until("results", `document.querySelectorAll("#results [role=option]").length > 0`)
		chosen := `document.getElementById(document.querySelector("#search").getAttribute("aria-activedescendant"))`
		first := get[string](b, chosen+".innerText")
		b.keys(kb.ArrowDown, kb.ArrowUp)
		if again := get[string](b, chosen+".innerText"); again != first || !strings.Contains(first, c.query) {
			t.Errorf("search %q chooses %q, and after going down and up %q", c.query, first, again)
		}
		b.readable("search results")
		b.keys(kb.Enter)
		b.until("what was found", fmt.Sprintf(`location.hash.startsWith(%q)`, c.view))
		b.shows(c.shown)
	}
	b.keys("/")
	b.keys(strings.Split("nosuchthing", "")...)
	b.shows("Nothing found")
	b.keys(kb.Escape)
	b.until("no results", `document.querySelector("#results").hidden`)

	// A group is one stop of the tab key; the arrow keys move in it.
	b.goTo("#/crew")
	b.until("the view crew", `document.querySelector("#crew").checkVisibility()`)
	b.do(chromedp.Evaluate(`document.querySelector(".nodes [tabindex='0']").focus()`, nil))
	before := b.focus()
	b.keys(kb.ArrowRight)
	after := b.focus()
	if before == after || !strings.Contains(after, "healthy") {
		t.Errorf("the arrow key moves the focus from %q to %q", before, after)
	}
	b.keys(kb.Enter)
	b.until("the daemon's card", `document.querySelector("#card h2")?.innerText.includes("daemon")`)
	if n := get[int](b, `document.querySelectorAll(".nodes [tabindex='0'], #topics [tabindex='0']").length`); n != 2 {
		t.Errorf("%d stops of the tab key in two groups", n)
	}
	// The focus stays where it is when the next pictures come.
	kept := b.focus()
	at := get[string](b, `document.querySelector("#foot").innerText`)
	b.until("another picture", fmt.Sprintf(`document.querySelector("#foot").innerText !== %q`, at))
	if now := b.focus(); now != kept {
		t.Errorf("a new picture moves the focus from %q to %q", kept, now)
	}
}

// The page is right when there is nothing to show, when there is much, and when the bus is away.
func TestScreens(t *testing.T) {
	crew := play(t)
	b := browse(t, serve(t, crew.runDir), 1440, 900)
	all := func(what string) {
		t.Helper()
		for _, view := range []string{"crew", "pods", "day"} {
			b.goTo("#/" + view)
			b.until("the view "+view, fmt.Sprintf(`document.querySelector("#%s").checkVisibility()`, view))
			b.inEachTheme(t, func(theme string) {
				b.readable(fmt.Sprintf("%s, %s, %s", what, view, theme))
				b.keep(strings.ReplaceAll(what+" "+view+" "+theme, " ", "-"))
			})
		}
	}
	b.shows("Only 1 of 11 daemons has reported so far")
	all("nothing")
	crew.crew()
	b.goTo("#/crew")
	b.shows("All 11 daemons are healthy")
	crew.pods(110)
	b.goTo("#/pods")
	b.until("110 pods", `document.querySelectorAll("#list li").length === 110 &&
		document.querySelectorAll(".cell").length === 110`)
	b.until("a pod that waits as the first one", `document.querySelector("#list li").innerText.includes("0/1")`)
	all("110 pods")
	b.do(chromedp.EmulateViewport(420, 800))
	all("small window")
	b.do(chromedp.EmulateViewport(1440, 900))

	crew.bus.Kill()
	b.shows("The bus is away")
	b.goTo("#/crew")
	if n := get[int](b, `document.querySelectorAll(".arrow").length`); n > 0 {
		t.Errorf("%d arrows of a bus that is away", n)
	}
	all("no bus")
	crew.startBus()
	b.until("the bus", `document.querySelector("#notice").hidden`)
}
