# Alarms of boards, as a plan has them. Loaded by a plan that has any.


# An alarm that a board raises itself: an effect outside the merge, of the newest that is known of a stream.
class Alarm:
    # index      number of the alarm in the plan
    # src, sport the stream
    # host       the board that raises it, by its actuator `driver`
    # silent_ms  raised when nothing was heard of the stream for so long; 0: silence raises nothing
    # field      raised while this field of the newest element is not 0; -1: no field raises it
    def __init__(
        self,
        index: int,
        name: str,
        src: int,
        sport: int,
        host: int,
        driver: str,
        silent_ms: int,
        field: int,
    ) -> None:
        self.index = index
        self.name = name
        self.src = src
        self.sport = sport
        self.host = host
        self.driver = driver
        self.silent_ms = silent_ms
        self.field = field
