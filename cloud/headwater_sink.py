"""The sink for `spark-submit`, on any cluster: the job of `hw sink`, master and jars from the submission.

    spark-submit --master spark://host:7077 --packages io.delta:delta-spark_4.2_2.13:4.4.0 \
        cloud/headwater_sink.py LANDING LAKE --forever

For a lake on S3 add org.apache.hadoop:hadoop-aws:3.5.0 to the packages, and its fs.s3a.* by --conf.
Only the driver runs Python, and needs the package headwater_cloud (beside this file, or in --py-files) and
the libraries of requirements-lake.lock; executors need Delta's jars alone.
"""

from __future__ import annotations

import argparse
import sys

from headwater_cloud import arguments, cli
from headwater_cloud.errors import LakeError, LakeFailed


def main() -> int:
    parser = argparse.ArgumentParser(prog="headwater_sink.py", description=arguments.DESCRIPTION)
    arguments.arguments(parser)
    args = parser.parse_args()
    try:
        code, _ = cli.sink(args, "", (), lambda text: print(text, flush=True))
    except LakeError as error:
        print("headwater_sink.py: %s" % error, file=sys.stderr)
        return 1 if isinstance(error, LakeFailed) else 2
    return code


if __name__ == "__main__":
    sys.exit(main())
