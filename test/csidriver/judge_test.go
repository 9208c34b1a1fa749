package csidriver

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"
)

// script is a log in short: "1 stage" begins call 1 of the volume v, "1 OK" ends it, "1 gone" has its caller give up;
// "start" and "hangup" are those of the driver and of the node agent, "later" a minute that passes.
func script(t *testing.T, text string) []Call {
	t.Helper()
	methods := map[string]string{
		"stage": "NodeStageVolume", "unstage": "NodeUnstageVolume", "publish": "NodePublishVolume",
		"unpublish": "NodeUnpublishVolume", "expand": "NodeExpandVolume", "attach": "ControllerPublishVolume",
		"detach": "ControllerUnpublishVolume", "usage": "NodeGetVolumeStats",
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var calls []Call
	for line := range strings.SplitSeq(text, ",") {
		at = at.Add(time.Second)
		words := strings.Fields(line)
		c := Call{At: at}
		switch words[0] {
		case "start":
			c.Start = true
		case "hangup":
			c.HungUp = true
		case "later":
			at = at.Add(time.Minute)
			continue
		default:
			id, err := strconv.ParseInt(words[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			c.ID = id
			switch method := methods[words[1]]; {
			case words[1] == "gone":
				c.Gone = true
			case method == "":
				c.End, c.Code = true, words[1]
			default:
				target := "/a"
				if len(words) > 2 {
					target = words[2]
				}
				c.Method = method
				c.Request, err = json.Marshal(map[string]string{
					"volumeId": "v", "targetPath": target, "stagingTargetPath": "/staged",
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		calls = append(calls, c)
	}
	return calls
}

func TestJudge(t *testing.T) {
	const (
		up   = "1 stage, 1 OK, 2 publish, 2 OK, "
		down = "3 unpublish, 3 OK, 4 unstage, 4 OK"
	)
	for name, c := range map[string]struct {
		log, want string
		rules     Rules
	}{
		"life": {log: up + down},
		"two pods": {
			log: up + "5 publish /b, 5 OK, 3 unpublish, 3 OK, 6 unpublish /b, 6 OK, 4 unstage, 4 OK",
		},
		"grows and is looked at":      {log: up + "5 expand, 6 usage, 6 OK, 5 OK, " + down},
		"again after the end":         {log: up + down + ", 5 stage, 5 OK"},
		"two at once":                 {log: "1 stage, 2 stage", want: "NodeStageVolume is under way"},
		"publish during expand":       {log: up + "5 expand, 6 publish /b", want: "NodeExpandVolume is under way"},
		"after its caller":            {log: "1 stage, 1 gone, 2 stage, 1 OK, 2 OK"},
		"its end comes last":          {log: "1 stage, 1 gone, 2 stage, 2 OK, 1 Internal, 3 publish, 3 OK"},
		"after the driver's death":    {log: "1 stage, start, 2 stage, 2 OK, 3 publish, 3 OK"},
		"published unstaged":          {log: "1 publish", want: "it isn't staged"},
		"published before the answer": {log: "1 stage, 1 Internal, 2 publish", want: "it isn't staged"},
		"unsure whether staged":       {log: "1 stage, 1 Aborted, 2 publish", want: "it isn't staged"},
		"staged for nobody":           {log: "1 stage, 1 gone, 1 OK, 2 publish", want: "it isn't staged"},
		"staged during unstaging":     {log: up + "3 unpublish, 3 OK, 4 unstage, 4 gone, 5 stage", want: "isn't answered"},
		"staged after a hung unstage": {
			log: up + "3 unpublish, 3 OK, 4 unstage, 4 gone, 4 DeadlineExceeded, 5 stage", want: "isn't answered",
		},
		"staged after its death":   {log: up + "3 unpublish, 3 OK, 4 unstage, start, 5 stage", want: "isn't answered"},
		"staged after it gave up":  {log: up + "3 unpublish, 3 OK, 4 unstage, 4 DeadlineExceeded, 5 stage, 5 OK"},
		"staged after a refusal":   {log: up + "3 unpublish, 3 OK, 4 unstage, 4 Internal, 5 stage, 5 OK"},
		"staged twice":             {log: up + "5 stage", want: "it is staged"},
		"published twice":          {log: up + "5 publish", want: "it is published at /a"},
		"republished":              {log: up + "5 publish, 5 OK", rules: Rules{Republishes: true}},
		"the answer is lost":       {log: "1 stage, 1 OK, hangup, 2 stage, 2 OK, 3 publish, 3 OK, hangup, 4 publish, 4 OK"},
		"it was noted":             {log: "1 stage, 1 OK, later, hangup, 2 stage", want: "it is staged"},
		"the driver forgot":        {log: "1 stage, 1 OK, 2 publish, 2 NotFound, 3 stage, 3 OK"},
		"unstaged below a pod":     {log: up + "3 unstage", want: "it is published, or may be"},
		"unstaged after a refusal": {log: up + "3 unpublish, 3 Internal, 4 unstage", want: "it is published, or may be"},
		"unsure whether published": {log: "1 stage, 1 OK, 2 publish, start, 3 unstage", want: "it is published, or may be"},
		"refused and unstaged":     {log: "1 stage, 1 OK, 2 publish, 2 Internal, 3 unstage, 3 OK"},
		"attached": {
			log: "8 attach, 8 OK, " + up + down + ", 9 detach, 9 OK", rules: Rules{Attaches: true},
		},
		"not attached":      {log: "1 stage", rules: Rules{Attaches: true}, want: "it isn't attached"},
		"detached too soon": {log: "8 attach, 8 OK, " + up + "9 detach", rules: Rules{Attaches: true}, want: "may be"},
		"detached below":    {log: "8 attach, 8 OK, 1 stage, 1 OK, 9 detach", want: "it is staged, or may be"},
		"staged when it goes": {
			log:   "8 attach, 8 OK, 9 detach, 1 stage",
			rules: Rules{Attaches: true}, want: "it isn't attached",
		},
	} {
		c.rules.Stages = true
		got := Judge(script(t, c.log), c.rules)
		if (len(got) == 0) != (c.want == "") || c.want != "" && !strings.Contains(strings.Join(got, "\n"), c.want) {
			t.Errorf("%s: %q; want %q", name, got, c.want)
		}
	}
}
