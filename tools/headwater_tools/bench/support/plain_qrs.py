# mypy: ignore-errors
"""Qrs with all of its arithmetic in one loop over the samples: what the bench's fused loop is made of.

It gives what `headwater.operators.qrs.Qrs` gives, which finds its blocks in a loop of their own.
"""

from __future__ import annotations

from headwater.operators.qrs import _WINDOW, Qrs


class PlainQrs(Qrs):
    def run(self, x, n):
        block = self.block
        hz = self.hz
        c = x.cols[0]
        oat = self.y.at
        back, rr_us, amp = self.y.cols
        ring = self.ring
        w = sum(ring)
        head = self.head
        k = self.block_n
        s = self.block_sum
        most = self.block_top
        at = self.block_at
        top = self.top
        top_age = self.top_age
        learn = self.learn
        beat = self.beat
        noise = self.noise
        pk = self.pk
        pk_age = self.pk_age
        pk_r = self.pk_r
        pk_amp = self.pk_amp
        known = self.known
        since = self.since
        strong = self.strong
        rr8 = self.rr8
        old = self.old
        old_r = self.old_r
        old_amp = self.old_amp
        j = 0
        for i in range(n):
            v = c[i]
            if v < 0:
                v = -v
            s += v
            if v > most:
                most = v
                at = k
            k += 1
            if k < block:
                continue
            if s > 65535:
                s = 65535
            w += s - ring[head]
            ring[head] = s
            head = (head + 1) & 15
            top_age += block
            if most >= top or top_age >= _WINDOW * block:
                top = most
                top_age = block - 1 - at
            s = k = most = at = 0
            if known:
                since += block
                if since > 1000000:  # an hour: no longer an interval
                    known = 0
            if learn:
                if w > beat:
                    beat = w
                learn -= 1
                if not learn:
                    noise = beat >> 3
                    beat -= beat >> 2
                continue
            if old:
                old_r += block
            r = -1  # age of the R peak, once there is a beat
            if w > pk:
                pk = w
                pk_age = 0
                pk_r = top_age
                pk_amp = top
            elif pk:
                pk_age += 1
                pk_r += block
                if w < pk >> 1 or pk_age > _WINDOW + 4:
                    d = since - pk_r if known else 1000000
                    if d * 5 >= hz:
                        level = noise + ((beat - noise) >> 2)
                        if pk > level and (d * 25 > hz * 9 or pk > strong >> 1):
                            r = pk_r
                            strong = pk
                            h = pk_amp
                            beat += (pk - beat) >> 3
                        else:
                            noise += (pk - noise) >> 3
                            if pk > old and d * 10 >= hz * 3:
                                old = pk
                                old_r = pk_r
                                old_amp = pk_amp
                    pk = 0
            if r < 0 and known and since * 24 > rr8 * 5:
                if old > noise + ((beat - noise) >> 2) >> 1:
                    r = old_r
                    strong = old
                    h = old_amp
                    beat += (old - beat) >> 2
                elif since * 24 > rr8 * 10 and beat > noise << 2:
                    beat -= beat >> 7  # nothing for long: come down, but stay clear of the noise
            if r >= 0:
                if known:
                    d = since - r
                    rr_us[j] = d * 1000000 // hz
                    q = rr8 >> 3
                    if d > 2 * q:
                        d = 2 * q
                    if d > 4 * hz:
                        d = 4 * hz
                    rr8 += d - q
                else:
                    rr_us[j] = 0
                back[j] = (r + self.delay) * 1000000 // hz
                amp[j] = h
                oat[j] = i
                j += 1
                since = r
                known = 1
                old = 0
        self.head = head
        self.block_n = k
        self.block_sum = s
        self.block_top = most
        self.block_at = at
        self.top = top
        self.top_age = top_age
        self.learn = learn
        self.beat = beat
        self.noise = noise
        self.pk = pk
        self.pk_age = pk_age
        self.pk_r = pk_r
        self.pk_amp = pk_amp
        self.known = known
        self.since = since
        self.strong = strong
        self.rr8 = rr8
        self.old = old
        self.old_r = old_r
        self.old_amp = old_amp
        return j
